import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import OpenAI from 'openai';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { embeddedAvailable } from '../../src/engines/embedded/availability.js';
import { writeTinyModel } from '../../src/engines/tiny-model/tiny-model.js';
import { waitFor } from '../support/wait-for.js';

const DIST = path.resolve(import.meta.dirname, '../../dist/engines');
const availability = await embeddedAvailable();

/** An engine program that was started, with what it said. */
interface Program {
  readonly child: ChildProcess;
  readonly said: () => string;
  readonly exited: Promise<number | null>;
}

const programs: Program[] = [];
afterEach(async () => {
  for (const { child, exited } of programs.splice(0)) {
    child.kill('SIGKILL');
    await exited;
  }
});

function start(engine: 'sim' | 'embedded', ...flags: string[]): Program {
  const child = spawn(process.execPath, [path.join(DIST, engine, 'main.js'), ...flags], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let said = '';
  child.stdout.on('data', (bytes: Buffer) => (said += bytes.toString()));
  child.stderr.on('data', (bytes: Buffer) => (said += bytes.toString()));
  const exited = new Promise<number | null>((resolve) => child.once('exit', (code) => resolve(code)));
  const program = { child, said: () => said, exited };
  programs.push(program);
  return program;
}

/** The address a program printed. */
async function addressOf({ said }: Program): Promise<string> {
  const found = await waitFor(() => /(127\.0\.0\.1:\d+)/.exec(said()), {
    deadlineMs: 30_000,
    what: 'an address in the output',
  });
  return `http://${found[1]}`;
}

async function ready(program: Program): Promise<string> {
  const url = await addressOf(program);
  await waitFor(async () => (await fetch(`${url}/health`)).status === 200, {
    deadlineMs: 30_000,
    what: `health of ${url}; it said: ${program.said()}`,
  });
  return url;
}

function client(url: string): OpenAI {
  return new OpenAI({ baseURL: `${url}/v1`, apiKey: 'none', maxRetries: 0 });
}

const messages = [{ role: 'user' as const, content: 'Hello' }];

async function streamed(openai: OpenAI, model: string): Promise<string> {
  let text = '';
  for await (const chunk of await openai.chat.completions.create({
    model,
    messages,
    seed: 3,
    max_tokens: 20,
    stream: true,
  })) {
    text += chunk.choices[0]?.delta.content ?? '';
  }
  return text;
}

async function whole(openai: OpenAI, model: string): Promise<string> {
  const answer = await openai.chat.completions.create({ model, messages, seed: 3, max_tokens: 20 });
  return answer.choices[0]?.message.content ?? '';
}

describe('the simulated engine’s program', () => {
  it('answers a real client, streamed and not, and ends on SIGTERM', async () => {
    const program = start('sim', '--model', 'm1', '--tpot-ms', '1');
    const openai = client(await ready(program));
    const text = await streamed(openai, 'm1');
    expect(text).not.toBe('');
    expect(await whole(openai, 'm1')).toBe(text);
    expect((await openai.models.list()).data.map((model) => model.id)).toEqual(['m1']);
    const embedding = await openai.embeddings.create({ model: 'm1', input: 'a' });
    expect(embedding.data[0]?.embedding).toHaveLength(64);
    let said = '';
    const events = await openai.responses.create({ model: 'm1', input: 'Hello', stream: true });
    for await (const event of events) if (event.type === 'response.output_text.delta') said += event.delta;
    const response = await openai.responses.create({ model: 'm1', input: 'Hello' });
    expect(response.output_text).toBe(said);
    program.child.kill('SIGTERM');
    expect(await program.exited).toBe(0);
  });

  it('gives the same text from two processes', async () => {
    const urls = await Promise.all([
      ready(start('sim', '--model', 'm1')),
      ready(start('sim', '--model', 'm1')),
    ]);
    const texts = await Promise.all(urls.map((url) => whole(client(url), 'm1')));
    expect(texts[0]).toBe(texts[1]);
  });

  it('prints progress and lines as told while it loads', async () => {
    const program = start('sim', '--startup-ms', '100', '--progress', '--log-line', 'a line of its own');
    await ready(program);
    expect(program.said()).toContain('a line of its own');
    expect(program.said()).toContain('100% Completed');
  });

  it('crashes as told: at once, later, and not by SIGTERM when it is to ignore that', async () => {
    expect(await start('sim', '--crash-on-start', '42').exited).toBe(42);
    const later = start('sim', '--crash-after-ms', '50');
    expect(await later.exited).toBe(1);
    const stubborn = start('sim', '--ignore-sigterm');
    const url = await ready(stubborn);
    stubborn.child.kill('SIGTERM');
    await waitFor(() => stubborn.said().includes('SIGTERM ignored'), {
      deadlineMs: 20_000,
      what: 'the signal to be told',
    });
    expect((await fetch(`${url}/health`)).status).toBe(200);
  });

  it('refuses a flag it does not know, and a port that is taken', async () => {
    const wrong = start('sim', '--port', '0', '--tpot', '5');
    expect(await wrong.exited).toBe(2);
    expect(wrong.said()).toContain("Unknown option '--tpot'");
    const first = await ready(start('sim'));
    const second = start('sim', '--port', new URL(first).port);
    expect(await second.exited).toBe(1);
    expect(second.said()).toContain('EADDRINUSE');
  });
});

describe.skipIf(!availability.available)('the embedded engine’s program', () => {
  let directory: string;
  let modelFile: string;
  beforeAll(async () => {
    directory = await mkdtemp(path.join(tmpdir(), 'llmgw-engines-'));
    modelFile = path.join(directory, 'tiny.gguf');
    await writeTinyModel(modelFile);
  });
  afterAll(() => rm(directory, { recursive: true }));

  it('answers a real client, streamed and not, and ends on SIGTERM', async () => {
    const program = start('embedded', '--model-file', modelFile, '--model', 'tiny');
    const openai = client(await ready(program));
    const text = await streamed(openai, 'tiny');
    expect(text).toMatch(/^[A-Z]/);
    expect(await whole(openai, 'tiny')).toBe(text);
    const again = await openai.chat.completions.create({ model: 'tiny', messages, max_tokens: 1 });
    expect(again.usage?.prompt_tokens_details?.cached_tokens).toBe((again.usage?.prompt_tokens ?? 0) - 1);
    program.child.kill('SIGTERM');
    expect(await program.exited).toBe(0);
  });

  it('ends with 1 and a line for a bad model, with 2 for a bad flag', async () => {
    const file = path.join(directory, 'bad.gguf');
    await writeFile(file, 'no model');
    const bad = start('embedded', '--model-file', file);
    expect(await bad.exited).toBe(1);
    expect(bad.said()).toContain(`${file} is no GGUF file`);
    const none = start('embedded');
    expect(await none.exited).toBe(2);
    expect(none.said()).toContain('--model-file');
  });

  it('ends when it is told to stop while it loads', async () => {
    const program = start('embedded', '--model-file', modelFile);
    await addressOf(program);
    program.child.kill('SIGTERM');
    expect(await program.exited).toBe(0);
  });
});
