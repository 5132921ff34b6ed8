import { readdirSync, readFileSync } from 'node:fs';
import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { LlmgwProcess, Scratch } from '../support/llmgw-process.js';
import { GivenUp, waitFor } from '../support/wait-for.js';

/** Processes whose working directory or arguments name the scratch folder: what `up` may have left behind. */
function leftovers(dir: string): string[] {
  return readdirSync('/proc')
    .filter((entry) => /^\d+$/.test(entry) && Number(entry) !== process.pid)
    .flatMap((pid) => {
      try {
        const command = readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ');
        return command.includes(dir) ? [`${pid} ${command}`] : [];
      } catch {
        return [];
      }
    });
}

describe('llmgw up', () => {
  const scratch = new Scratch();
  let up: LlmgwProcess;
  let client: OpenAI;
  let curl: string;

  beforeAll(async () => {
    up = new LlmgwProcess(
      [
        ...[
          'up',
          '--listen',
          '127.0.0.1:0',
          '--admin-listen',
          '127.0.0.1:0',
          '--agent-listen',
          '127.0.0.1:0',
        ],
        ...['--state-dir', scratch.path('state')],
      ],
      {},
      scratch.dir,
    );
    curl = await waitFor(
      () => {
        if (up.exited !== undefined) throw new GivenUp(`up ended: ${up.stderr}`);
        return /curl .*/s.exec(up.stdout)?.[0];
      },
      { deadlineMs: 60_000, what: 'the curl line' },
    );
    const url = /http:\/\/[\d.]+:\d+/.exec(curl)?.[0] ?? '';
    client = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'unused', maxRetries: 0 });
  });

  afterAll(async () => {
    await up?.dispose();
    scratch.remove();
  });

  it('streams real tokens to the official client, and repeats a seed', async () => {
    const [model] = (await client.models.list()).data;
    if (model === undefined) throw new Error('no model listed');
    const body = {
      model: model.id,
      messages: [{ role: 'user' as const, content: 'What does a gateway do?' }],
      max_tokens: 24,
      seed: 11,
    };
    const whole = await client.chat.completions.create(body);
    const text = whole.choices[0]?.message.content ?? '';
    expect(text.length).toBeGreaterThan(10);
    expect(whole.usage?.completion_tokens).toBeGreaterThan(0);
    let streamed = '';
    let chunks = 0;
    for await (const chunk of await client.chat.completions.create({ ...body, stream: true })) {
      streamed += chunk.choices[0]?.delta.content ?? '';
      chunks++;
    }
    expect(streamed).toBe(text);
    expect(chunks).toBeGreaterThan(3);
  });

  it('reports what the prefix cache gave', async () => {
    const [model] = (await client.models.list()).data;
    const ask = () =>
      client.chat.completions.create({
        model: model?.id ?? '',
        messages: [
          { role: 'user', content: 'Tell me about prefixes, replicas and caches, please. '.repeat(4) },
        ],
        max_tokens: 4,
      });
    await ask();
    const second = await ask();
    expect(second.usage?.prompt_tokens_details?.cached_tokens).toBeGreaterThan(10);
  });

  it('stops the engine too when interrupted', async () => {
    up.signal('SIGINT');
    const exit = await up.ended(20_000);
    expect([0, 130]).toContain(exit.code);
    // What waits for the last line of an ended engine's log goes a moment later.
    await waitFor(
      () => {
        expect(leftovers(scratch.dir)).toEqual([]);
        return true;
      },
      { deadlineMs: 20_000, what: 'nothing to be left' },
    );
  });
});
