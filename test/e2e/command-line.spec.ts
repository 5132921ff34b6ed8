import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, existsSync, openSync, readFileSync, readdirSync } from 'node:fs';
import { resolve } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { SimEngine } from '../../src/engines/sim/sim-engine.js';
import { LlmgwProcess, Scratch, startServerProcess } from '../support/llmgw-process.js';
import { waitFor } from '../support/wait-for.js';

const MAIN = resolve(import.meta.dirname, '..', '..', 'dist', 'main.js');

async function ran(args: readonly string[], env: Record<string, string> = {}): Promise<LlmgwProcess> {
  const process = new LlmgwProcess(args, env);
  await process.ended();
  return process;
}

describe('the command line as a real process', () => {
  it.each([
    [['--version'], 0],
    [['ctl', 'nods'], 2],
    [['ctl', 'nodes', '--server', '127.0.0.1:1'], 5],
    [['server'], 2],
    [['no-such-command'], 2],
  ])('llmgw %j ends with %d', async (args, code) => {
    const process = await ran(args);
    expect(process.exited).toEqual({ code, signal: null });
    expect(process.stdout === '').toBe(code !== 0);
    expect(process.stderr === '').toBe(code === 0);
  });

  it('reads the address of the admin API from the environment', async () => {
    const process = await ran(['ctl', 'nodes'], { LLMGW_ADMIN_URL: 'http://127.0.0.1:2' });
    expect(process.stderr).toContain('http://127.0.0.1:2');
  });

  // `llmgw ctl ... | head -1` is an ordinary thing to do.
  it('is quiet when its reader goes away', async () => {
    const child = spawn(process.execPath, [MAIN, 'ctl', '--help'], { stdio: ['ignore', 'pipe', 'pipe'] });
    child.stdout.destroy();
    let err = '';
    child.stderr.setEncoding('utf8').on('data', (text: string) => (err += text));
    const [code] = (await once(child, 'close')) as [number];
    expect({ code, err }).toEqual({ code: 0, err: '' });
  });
});

// `llmgw ctl ... -o json > file` on a full disk leaves a file that is not whole: a script must see that.
it.skipIf(!existsSync('/dev/full'))('says that its output could not be written', async () => {
  const full = openSync('/dev/full', 'w');
  const child = spawn(process.execPath, [MAIN, 'ctl', '--help'], { stdio: ['ignore', full, 'pipe'] });
  closeSync(full);
  let err = '';
  child.stderr!.setEncoding('utf8').on('data', (text: string) => (err += text));
  const [code] = (await once(child, 'close')) as [number];
  expect({ code, err }).toEqual({
    code: 1,
    err: 'the output cannot be written: ENOSPC: no space left on device, write\n',
  });
});

describe('ctl starts fast', () => {
  // Nest, the validator and the log cost more than everything ctl does; one careless import brings them all.
  it('because nothing of the server is loaded with it', async () => {
    const scratch = new Scratch();
    const program = 'TIMEFORMAT="%U %S"; time "$@"';
    const child = spawn('bash', ['-c', program, 'bash', process.execPath, MAIN, 'ctl', '--help'], {
      env: { ...process.env, NODE_V8_COVERAGE: scratch.dir },
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    let err = '';
    child.stderr.setEncoding('utf8').on('data', (text: string) => (err += text));
    expect(await once(child, 'close')).toEqual([0, null]);
    const [report] = readdirSync(scratch.dir).filter((name) => name.startsWith('coverage-'));
    const loaded = (
      JSON.parse(readFileSync(scratch.path(report!), 'utf8')) as { result: { url: string }[] }
    ).result.map(({ url }) => url);
    const packages = loaded.flatMap((url) => /.*\/node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(url)?.[1] ?? []);
    const rooms = loaded.flatMap((url) => /\/dist\/([^/]+)\//.exec(url)?.[1] ?? []);
    expect([...new Set(packages)].toSorted()).toEqual(['commander', 'nest-commander', 'reflect-metadata']);
    expect([...new Set(rooms)].toSorted()).toEqual(['cli', 'config', 'shared']);
    const [user = 0, system = 0] = err.trim().split(' ').map(Number);
    // With the coverage that this needs; a figure to look at, for a test that times is red on a busy machine.
    process.stdout.write(`ctl --help: ${(user + system).toFixed(2)} s of CPU, ${loaded.length} modules\n`);
    scratch.remove();
  });
});

describe('signals', () => {
  const scratch = new Scratch();
  const engine = new SimEngine({ models: ['m1'], seed: 7, tpotMs: 200 });
  afterAll(async () => {
    await engine.stop();
    scratch.remove();
  });

  /** A server with one stream running through it that lasts much longer than the test. */
  async function busyServer(): Promise<{ server: LlmgwProcess; rest: Promise<string> }> {
    const port = await engine.start({ port: 0 });
    const { process: server, urls } = await startServerProcess(scratch, [
      '--endpoint',
      `e1=http://127.0.0.1:${port}=m1`,
    ]);
    const response = await fetch(`${urls.client}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({
        model: 'm1',
        stream: true,
        max_tokens: 5_000,
        messages: [{ role: 'user', content: 'go on' }],
      }),
    });
    const reader = response.body!.getReader();
    await reader.read();
    return { server, rest: readRest(reader) };
  }

  async function readRest(reader: ReadableStreamDefaultReader<Uint8Array>): Promise<string> {
    const pieces: Uint8Array[] = [];
    for (let read = await reader.read(); !read.done; read = await reader.read()) pieces.push(read.value);
    return Buffer.concat(pieces).toString();
  }

  // The streams were cut without a word, and some clients took what they had for the whole answer.
  it('the second one ends a server at once that is waiting for a stream, and its client is told', async () => {
    const { server, rest } = await busyServer();
    server.signal('SIGTERM');
    await server.logged('server is stopping');
    expect(server.exited).toBeUndefined();
    server.signal('SIGTERM');
    expect(await server.ended()).toEqual({ code: 130, signal: null });
    const events = (await rest).trimEnd().split('\n\n');
    expect(events.at(-1)).toMatch(/^data: \{"error":\{.*"code":"shutting_down"/);
    expect(events).not.toContain('data: [DONE]');
  });
});

describe('llmgw up', () => {
  it('takes its engines along even when it is ended in a hurry', async () => {
    const scratch = new Scratch();
    const config = scratch.file(
      'up.yaml',
      'models: [{ name: m, profiles: [{ name: slow, engine: sim, args: ["--tpot-ms", "200"] }] }]',
    );
    const anyPort = ['--listen', '--admin-listen', '--agent-listen'].flatMap((flag) => [flag, '127.0.0.1:0']);
    const up = new LlmgwProcess(
      ['up', '--config', config, ...anyPort, '--state-dir', scratch.path('s')],
      {},
      scratch.dir,
    );
    const found = (pattern: RegExp) =>
      waitFor(() => pattern.exec(up.stdout)?.[1], { deadlineMs: 60_000, what: String(pattern) });
    const admin = await found(/admin API\s+(\S+)/);
    const client = await found(/curl -N (http:\S+)/);
    const replicas = (await (await fetch(`${admin}/admin/v1/replicas`)).json()) as {
      items: { id: string }[];
    };
    const replica = (await (await fetch(`${admin}/admin/v1/replicas/${replicas.items[0]!.id}`)).json()) as {
      shards: { pid: number }[];
    };
    const pid = replica.shards[0]!.pid;
    const response = await fetch(client, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({
        model: 'm',
        stream: true,
        max_tokens: 5_000,
        messages: [{ role: 'user', content: 'go on' }],
      }),
    });
    const reader = response.body!.getReader();
    await reader.read();
    reader.closed.catch(() => undefined);
    up.signal('SIGINT');
    await waitFor(() => up.stderr.includes('stopping'), {
      deadlineMs: 20_000,
      what: 'the graceful end to begin',
    });
    expect(up.exited).toBeUndefined();
    up.signal('SIGINT');
    expect(await up.ended(10_000)).toEqual({ code: 130, signal: null });
    await waitFor(() => !isAlive(pid), { deadlineMs: 10_000, what: `the end of engine ${pid}` });
    scratch.remove();
  });
});

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

describe('watching', () => {
  it('prints again only what changed, one JSON object a line', async () => {
    const scratch = new Scratch();
    const engine = new SimEngine({ models: ['m1'], seed: 7 });
    const port = await engine.start({ port: 0 });
    const { process: server, urls } = await startServerProcess(scratch, [
      '--endpoint',
      `e1=http://127.0.0.1:${port}=m1`,
    ]);
    const watch = new LlmgwProcess(['ctl', 'endpoints', '--watch', '-o', 'json', '--server', urls.admin]);
    await waitFor(() => (watch.stdout.includes('\n') ? true : undefined), {
      deadlineMs: 10_000,
      what: 'the first look',
    });
    await fetch(`${urls.client}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'm1', max_tokens: 3, messages: [{ role: 'user', content: 'hello' }] }),
    });
    const second = await waitFor(
      () => {
        const lines = watch.stdout.trim().split('\n');
        return lines
          .map((line) => JSON.parse(line) as { items: { requestsTotal: number }[] })
          .find(({ items }) => items[0]!.requestsTotal === 1);
      },
      { deadlineMs: 15_000, what: 'the look after a request' },
    );
    expect(second.items).toHaveLength(1);
    watch.signal('SIGKILL');
    await server.dispose();
    await engine.stop();
    scratch.remove();
  });
});
