import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { SimEngine } from '../../src/engines/sim/sim-engine.js';
import { LlmgwProcess, Scratch, startServerProcess, type ServerUrls } from '../support/llmgw-process.js';

describe('keys and tokens on a real server', () => {
  const scratch = new Scratch();
  const engine = new SimEngine({ models: ['m1', 'm2'], seed: 7 });
  let server: LlmgwProcess;
  let urls: ServerUrls;
  let config: string;
  const secrets: string[] = [];
  const outputs: string[] = [];

  beforeAll(async () => {
    const port = await engine.start({ port: 0 });
    const endpoint = `{ id: e1, url: "http://127.0.0.1:${port}", models: [m1, m2] }`;
    config = scratch.file(
      'llmgw.yaml',
      `endpoints: [${endpoint}]\nauth: { apiKeys: { required: true } }\nlog: { level: debug }\n`,
    );
    await start();
  });

  afterAll(async () => {
    await server?.dispose();
    await engine.stop();
    scratch.remove();
  });

  async function start(): Promise<void> {
    ({ process: server, urls } = await startServerProcess(scratch, ['--config', config]));
  }

  async function ctl(...args: string[]): Promise<{ code: number | null; out: string; err: string }> {
    const run = new LlmgwProcess(['ctl', '--server', urls.admin, ...args], {}, scratch.dir);
    const { code } = await run.ended();
    return { code, out: run.stdout, err: run.stderr };
  }

  /** Makes a key or token; standard output has the secret and nothing else. */
  async function make(...args: string[]): Promise<string> {
    const { code, out, err } = await ctl(...args);
    expect([code, err]).toEqual([0, expect.stringContaining('the only time its secret is shown')]);
    const secret = out.trimEnd();
    expect(out).toBe(`${secret}\n`);
    secrets.push(secret);
    return secret;
  }

  const ask = (key: string | undefined, model = 'm1') =>
    fetch(`${urls.client}/v1/chat/completions`, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        ...(key === undefined ? {} : { authorization: `Bearer ${key}` }),
      },
      body: JSON.stringify({ model, max_tokens: 5, messages: [{ role: 'user', content: 'hi' }] }),
    });

  const status = async (key: string | undefined, model?: string) => {
    const response = await ask(key, model);
    await response.text();
    return response.status;
  };

  it('lets nobody in without a key, and makes one that works, within its limits, until it is revoked', async () => {
    expect(await status(undefined)).toBe(401);
    expect((await fetch(`${urls.client}/health`)).status).toBe(200);
    const key = await make(
      'keys',
      'create',
      '--name',
      'ci',
      '--models',
      'm1,other',
      '--rpm',
      '3',
      '--expires',
      '1h',
    );
    expect(key).toMatch(/^sk-llmgw-[\w-]{43}$/);

    const client = new OpenAI({ baseURL: `${urls.client}/v1`, apiKey: key, maxRetries: 0 });
    expect((await client.models.list()).data.map(({ id }) => id)).toEqual(['m1']);
    const stream = await client.chat.completions.create({
      model: 'm1',
      stream: true,
      max_tokens: 5,
      messages: [{ role: 'user', content: 'hi' }],
    });
    let text = '';
    for await (const chunk of stream) text += chunk.choices[0]?.delta.content ?? '';
    expect(text).not.toBe('');
    expect(await status(key, 'm2')).toBe(403);
    const second = await ask(key);
    expect(second.headers.get('x-ratelimit-remaining-requests')).toBe('1');
    expect(await status(key)).toBe(200);
    const refused = await ask(key);
    expect(refused.status).toBe(429);
    expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0);
    expect(await refused.json()).toMatchObject({
      error: { code: 'rate_limit_exceeded', type: 'rate_limit_error' },
    });

    const listed = await ctl('keys', 'list', '-o', 'wide');
    expect(listed.out).toMatch(/ci +active +m1,other +3 /);
    const [id = ''] = (await ctl('keys', 'list', '-o', 'name')).out.split('\n');
    const revoked = await ctl('keys', 'revoke', id.slice(0, 7));
    expect(revoked).toMatchObject({ code: 0, out: `${id} (ci): revoked\n` });
    expect(await status(key)).toBe(401);
    expect((await ctl('keys', 'list', '-o', 'name')).out).toBe('');
    expect((await ctl('keys', 'list', '--all')).out).toMatch(/ci +revoked .*by local/);
    const metrics = await (await fetch(`${urls.admin}/metrics`)).text();
    expect(metrics).not.toContain(`key="${id}"`);
    outputs.push(metrics, listed.out, server.stderr);
  });

  it('refuses what makes no sense, with the flag that is wrong', async () => {
    for (const [args, message] of [
      [['keys', 'create'], /^--name is missing/],
      [['keys', 'create', '--name', 'x', '--rpm', '0'], /^--rpm: expected a whole number from 1, got '0'/],
      [['keys', 'create', '--name', 'x', '--expires', '30'], /^--expires: expected a duration such as/],
      [['keys', 'create', '--name', 'x', '--models', 'a,,b'], /^--models: expected names/],
      [
        ['keys', 'create', '--name', 'x', '--modls', 'a'],
        /^unknown option '--modls'\n\(Did you mean --models\?\)/,
      ],
      [['keys', 'create', '--name', 'x', '-o', 'name'], /^-o name would lose the secret/],
      [['keys', 'crate'], /^unknown command 'crate' of 'llmgw ctl keys' \(did you mean "create"\?\)/],
      [['tokens', 'create', '--name', 'x', '--role', 'operater'], /^--role: .*did you mean "operator"/],
    ] as const) {
      const { code, out, err } = await ctl(...args);
      expect([code, out]).toEqual([2, '']);
      expect(err).toMatch(message);
    }
    expect((await ctl('keys', 'revoke', 'nope')).code).toBe(3);
  });

  it('keeps keys over a restart, and closes the admin API with the first token', async () => {
    const kept = await make('keys', 'create', '--name', 'kept', '--priority', '200');
    const first = await ctl('tokens', 'create', '--name', 'bob');
    expect([first.code, first.err]).toEqual([
      7,
      expect.stringContaining('the first token must have the role admin'),
    ]);
    const admin = await make('tokens', 'create', '--name', 'alice', '--role', 'admin');
    expect((await ctl('keys', 'list')).code).toBe(4);
    const file = scratch.file('token', `${admin}\n`);
    const join = await make('tokens', 'create', '--name', 'rack', '--kind', 'join', '--token-file', file);
    expect(join).toMatch(/^llmgw-join-/);
    await server.dispose();
    outputs.push(server.stderr);
    await start();
    expect(await status(kept)).toBe(200);
    expect(await status('sk-llmgw-x')).toBe(401);
    expect((await ctl('keys', 'list')).code).toBe(4);
    const tokens = await ctl('tokens', 'list', '--token-file', file);
    expect(tokens.out).toMatch(/alice +admin +admin +active/);
    expect(tokens.out).toMatch(/rack +join +- +active/);
    const audit = await fetch(`${urls.admin}/admin/v1/audit`, {
      headers: { authorization: `Bearer ${admin}` },
    });
    outputs.push(await audit.text(), tokens.out);
    expect(outputs.at(-2)).toContain('"action":"create key"');
  });

  it('has no secret anywhere but where it was given: not in logs, answers, metrics or on disk', () => {
    const state = scratch.path('server-state');
    for (const name of readdirSync(state)) outputs.push(readFileSync(join(state, name)).toString('latin1'));
    outputs.push(server.stderr);
    expect(secrets).toHaveLength(4);
    for (const secret of secrets) for (const output of outputs) expect(output.includes(secret)).toBe(false);
  });
});
