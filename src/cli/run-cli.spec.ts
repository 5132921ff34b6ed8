import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { runLlmgw as run, type Ran } from '../../test/support/run-ctl.js';

/** Answers of the admin API by path; anything else is not found. */
const ANSWERS: Readonly<Record<string, unknown>> = {
  '/admin/v1/nodes': {
    items: [node('n1', { zone: 'a' }), node('n2-long', { zone: 'b' }), node('n2-other', {})],
  },
  '/admin/v1/nodes/n1': {
    ...node('n1', { zone: 'a' }),
    gpuDevices: [],
    shards: [],
    portsTaken: [],
    weightsPresent: [],
  },
  '/admin/v1/nodes/n2-long': {
    ...node('n2-long', {}),
    gpuDevices: [],
    shards: [],
    portsTaken: [],
    weightsPresent: [],
  },
  // Behind a proxy that keeps the admin API below a folder of its own.
  '/gateway/admin/v1/nodes': { items: [node('far', {})] },
  '/admin/v1/gpus': { items: [gpu('GPU-1', 'n1'), gpu('GPU-10', 'n10'), gpu('GPU-2', 'n2-long')] },
  '/admin/v1/replicas': { items: [replica('q-1', 'n1'), replica('q-2', 'n10')] },
  '/admin/v1/shards/q-1/logs': { shardId: 'q-1.0', nodeId: 'n1', text: 'one\r\n\ttwo\n' },
  '/admin/v1/events': { items: [event(1, 'n1'), event(2, 'n10')] },
  '/admin/v1/models': {
    items: [
      {
        name: 'org/qwen:7b',
        aliases: [],
        desired: 1,
        ready: 0,
        byState: {},
        outlook: 'none',
        routingProfile: 'interactive',
        staticEndpoints: [],
      },
    ],
  },
};

function node(id: string, labels: Record<string, string>) {
  return {
    id,
    labels,
    state: 'connected',
    address: '10.0.0.1',
    engines: [],
    gpus: { total: 0, healthy: 0, free: 0 },
    replicas: [],
    conditions: [],
    scheduling: { target: 'schedulable', state: 'schedulable', sequence: 1, waitingFor: [] },
  };
}

function gpu(uuid: string, nodeId: string) {
  return { uuid, nodeId, type: 'H100', health: { state: 'healthy' }, heldBy: [], foreign: [] };
}

/** Of a model that is asked for by its alias. */
function replica(id: string, nodeId: string) {
  return { id, model: 'org/qwen:7b', nodes: [nodeId], state: 'ready', published: true };
}

function event(sequence: number, id: string) {
  const about = { subject: { kind: 'node', id }, related: [], reason: { code: 'c', message: `of ${id}` } };
  return {
    sequence,
    at: '2026-01-02T03:04:05.000Z',
    type: 'NodeJoined',
    severity: 'info',
    actor: 'ann',
    ...about,
  };
}

const asStream = (...events: ReturnType<typeof event>[]): string =>
  events.map((one) => `id: ${one.sequence}\ndata: ${JSON.stringify(one)}\n\n`).join('');

let server: Server;
let url: string;
const calls: { method: string; path: string; token: string | undefined; body: string }[] = [];

beforeAll(async () => {
  server = createServer((request, response) => {
    let body = '';
    request.on('data', (chunk) => (body += String(chunk)));
    request.on('end', () => {
      const path = request.url ?? '';
      calls.push({ method: request.method ?? '', path, token: request.headers.authorization, body });
      const reply = (status: number, value: unknown) => {
        response.writeHead(status, { 'content-type': 'application/json' });
        response.end(JSON.stringify(value));
      };
      if (path.startsWith('/admin/v1/secret'))
        return reply(401, { error: { code: 'unauthenticated', message: 'a token is needed' } });
      if (request.method === 'PUT')
        return reply(409, {
          error: { code: 'refused', message: 'qwen would have no replica', hint: 'consent with --allow-gap' },
        });
      if (path.startsWith('/admin/v1/events?follow=true')) {
        // Two events and a server that ends; one more once it is back; then it wants a token.
        const after = new URL(path, url).searchParams.get('after');
        if (after === '3')
          return reply(401, { error: { code: 'unauthenticated', message: 'a token is needed' } });
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        return response.end(
          after === '2' ? asStream(event(3, 'n1')) : asStream(event(1, 'n1'), event(2, 'n10')),
        );
      }
      const answer = ANSWERS[path.split('?')[0]!];
      if (answer === undefined) return reply(404, { error: { code: 'not_found', message: 'no such thing' } });
      reply(200, answer);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});

afterAll(() => server.close());

const ctl = (...argv: string[]): Promise<Ran> => run('ctl', '--server', url, ...argv);

describe('what is printed where, and how it ends', () => {
  it.each([
    [['--version'], 0, /^llmgw \d+\.\d+\.\d+\n$/, /^$/],
    [['ctl', '--help'], 0, /^Usage: llmgw ctl/, /^$/],
    [['ctl', 'nodes', '--help'], 0, /Examples:/, /^$/],
    [['ctl', 'nods'], 2, /^$/, /^unknown command 'nods' of 'llmgw ctl' \(did you mean "nodes"\?\)\n/],
    [['ctl', 'nodes', '--wach'], 2, /^$/, /^unknown option '--wach'\n\(Did you mean --watch\?\)\n/],
    [['ctl', 'node'], 2, /^$/, /^missing required argument 'id'\n/],
    [['ctl', 'get', 'nodes', '-o', 'wide'], 2, /^$/, /^llmgw ctl has no 'get'\nuse: llmgw ctl nodes\n$/],
    [['ctl', 'apply', '-f', 'x.yaml'], 2, /^$/, /^llmgw ctl has no 'apply'\nuse: llmgw ctl plan -f FILE /],
    [['ctl', '--bogus'], 2, /^$/, /^unknown option '--bogus'\n/],
    [['ctl', 'nodes', 'n1'], 2, /^$/, /too many arguments|unknown command/],
    [['ctl', 'nodes', '-o', 'jsn'], 2, /^$/, /^unknown output format 'jsn' \(did you mean "json"\?\)\n/],
    [['ctl', 'nodes', '--server', 'ftp://x'], 2, /^$/, /^--server: expected a URL/],
    [
      ['ctl', 'nodes', '--token-file', '/nowhere/token'],
      2,
      /^$/,
      /^--token-file: \/nowhere\/token cannot be read/,
    ],
    [['ctl', 'nodes', '-l', 'a b'], 2, /^$/, /^--selector: expected key=value/],
    [['ctl', 'drain', 'n1', '--deadline', '30'], 2, /^$/, /^--deadline: expected a duration/],
    [['ctl', 'completion', 'fihs'], 2, /^$/, /^unknown shell 'fihs' \(did you mean "fish"\?\)\n/],
    [['sevrer'], 2, /^$/, /^unknown command 'sevrer'\n\(Did you mean server\?\)\n/],
    [['config', 'chekc'], 2, /^$/, /^unknown command 'chekc' of 'llmgw config' \(did you mean "check"\?\)\n/],
    [['config', 'check', '--config', '/nowhere.yaml'], 2, /^$/, /^\/nowhere\.yaml: no such file\n$/],
    [['server', '--endpoint', 'x'], 2, /^$/, /^--endpoint "x": expected id=URL=model\[,model\]\n$/],
    [
      ['server'],
      2,
      /^$/,
      /^nothing to serve: declare models with profiles, or give --endpoint for a router-only run\n$/,
    ],
    [['up', '--model', 'x'], 2, /^$/, /^--model "x": expected NAME=SOURCE\n/],
    [['agent', '--label', 'x'], 2, /^$/, /^--label "x": expected KEY=VALUE\n$/],
  ])('llmgw %j', async (argv, code, out, err) => {
    const ran = await run(...argv);
    expect(ran).toMatchObject({ code });
    expect(ran.out).toMatch(out);
    expect(ran.err).toMatch(err);
    expect(ran.err).not.toMatch(/\n\s+at /);
  });

  it('says which address was tried when nothing answers, and what to do', async () => {
    const ran = await run('ctl', 'nodes', '--server', '127.0.0.1:1');
    expect(ran).toMatchObject({ code: 5, out: '' });
    expect(ran.err).toContain('cannot reach the server at http://127.0.0.1:1: connection refused');
    expect(ran.err).toContain('--server URL');
  });

  it('shows a stack only when asked', async () => {
    expect((await run('ctl', 'nods', '--debug')).err).toMatch(/\n\s+at /);
  });

  it.each([
    [['ctl', 'nods', '-o', 'json'], 'invalid_argument', 2],
    [['ctl', 'nodes', '--output=json', '--server', '127.0.0.1:1'], 'unreachable', 5],
    [['ctl', '-ojson', 'nodes', '--what'], 'usage', 2],
    [['ctl', '-wojson', 'nodes', '--what'], 'usage', 2],
    [['ctl', 'nodes', '-wo', 'json', '--server', '127.0.0.1:1'], 'unreachable', 5],
    [['config', 'check', '--config', '/nowhere.yaml', '-o', 'json'], 'usage', 2],
  ])('one JSON object on standard error: %j', async (argv, code, exit) => {
    const ran = await run(...argv);
    expect(ran).toMatchObject({ code: exit, out: '' });
    expect(JSON.parse(ran.err)).toMatchObject({ error: { code, message: expect.any(String) as string } });
  });
});

describe('answers of a server', () => {
  it('prints tables, JSON, YAML and names', async () => {
    const table = await ctl('nodes');
    expect(table.code).toBe(0);
    expect(table.out.split('\n').map((line) => line.split(/ {2,}/)[0])).toEqual([
      'NODE',
      'n1',
      'n2-long',
      'n2-other',
      '',
    ]);
    expect(JSON.parse((await ctl('nodes', '-o', 'json')).out)).toEqual(ANSWERS['/admin/v1/nodes']);
    expect((await ctl('nodes', '-o', 'yaml')).out).toContain('items:\n  - id: n1\n');
    expect((await ctl('-o', 'name', 'nodes')).out).toBe('n1\nn2-long\nn2-other\n');
    expect((await ctl('nodes', '-o', 'wide')).out).toContain('zone=a');
  });

  it.each([
    ['zone=a', 'n1\n'],
    ['zone!=a', 'n2-long\nn2-other\n'],
    ['zone', 'n1\nn2-long\n'],
    ['zone=b,zone', 'n2-long\n'],
  ])('selects by labels: %s', async (selector, names) => {
    expect((await ctl('nodes', '-l', selector, '-o', 'name')).out).toBe(names);
  });

  it('takes the beginning of an id when only one begins so', async () => {
    expect((await ctl('node', 'n2-l', '-o', 'name')).out).toBe('n2-long\n');
    expect(await ctl('node', 'n2')).toMatchObject({
      code: 7,
      err: "node 'n2' is not unique: n2-long, n2-other\ngive more of the id\n",
    });
    expect(await ctl('node', 'x9')).toMatchObject({
      code: 3,
      err: "no node 'x9'\nknown are: n1, n2-long, n2-other\n",
    });
    expect((await ctl('node', 'n1x')).err).toContain('did you mean "n1"?');
  });

  it('escapes names in paths', async () => {
    await ctl('model', 'org/qwen:7b');
    expect(calls.map(({ path }) => path)).toContain('/admin/v1/models/org%2Fqwen%3A7b');
  });

  it("keeps the server's code, message and hint", async () => {
    expect(await ctl('cordon', 'n1')).toEqual({
      code: 7,
      out: '',
      err: 'qwen would have no replica\nconsent with --allow-gap\n',
    });
    const { body, method } = calls.at(-1)!;
    expect([method, JSON.parse(body)]).toEqual(['PUT', { target: 'cordoned' }]);
  });

  it('sends the token of its file, and no other', async () => {
    const directory = mkdtempSync(join(tmpdir(), 'llmgw-cli-'));
    const file = join(directory, 'token');
    writeFileSync(file, 'lgw_secret\n');
    await ctl('nodes', '--token-file', file);
    expect(calls.at(-1)?.token).toBe('Bearer lgw_secret');
    await ctl('nodes');
    expect(calls.at(-1)?.token).toBeUndefined();
    rmSync(directory, { recursive: true });
  });

  it('is not confused by a server that is something else', async () => {
    const other = createServer((_request, response) => response.end('<html>hello</html>'));
    await new Promise<void>((resolve) => other.listen(0, '127.0.0.1', resolve));
    const ran = await run('ctl', 'nodes', '--server', `127.0.0.1:${(other.address() as AddressInfo).port}`);
    expect(ran).toMatchObject({ code: 5, out: '' });
    expect(ran.err).toContain('not as the admin API of llmgw');
    other.close();
  });

  // Of n1 and n10 the first alone is n1, and a machine that is not there is no machine without devices.
  it.each([
    ['gpus', '--node', 'n1', 0, 'GPU-1\n'],
    ['gpus', '--node', 'n2-l', 0, 'GPU-2\n'],
    ['gpus', '--node', 'nix', 3, ''],
    ['replicas', '--node', 'n1', 0, 'q-1\n'],
    ['replicas', '--node', 'nix', 3, ''],
    ['replicas', '--model', 'an-alias', 0, 'q-1\nq-2\n'],
    ['events', '--about', 'n1', 0, '1\n'],
    ['events', '--about', 'n10', 0, '2\n'],
    ['events', '--about', 'nix', 0, ''],
  ])('%s %s %s', async (list, option, given, code, out) => {
    expect(await ctl(list, option, given, '-o', 'name')).toMatchObject({ code, out });
  });

  it('says of what there are no events, and what may have been meant', async () => {
    expect((await ctl('events', '--about', 'n11')).out).toBe('no events about n11 (did you mean "n1"?)\n');
  });

  it.each([
    ['json', /^\{"sequence":1,.*\}\n\{"sequence":2,.*\}\n\{"sequence":3,.*\}\n$/],
    ['yaml', /^---\nsequence: 1\n[^]*---\nsequence: 3\n/],
    ['name', /^1\n2\n3\n$/],
    ['table', /^03:04:05 {2}info {5}NodeJoined {2}node\/n1 {2}of n1 \(ann\)\n.*n10 \(ann\)\n.*n1 \(ann\)\n$/],
  ])('follows events as %s, and on when the server is back', async (format, out) => {
    const ran = await ctl('events', '-f', '-o', format);
    expect(ran.out).toMatch(out);
    expect(ran.err).toContain('sends nothing more; trying again');
    expect(ran.code).toBe(4);
  });

  it.each([
    ['json', 0, /^\{\n {2}"shardId": "q-1\.0",/],
    ['yaml', 0, /^shardId: q-1\.0\n/],
    ['name', 0, /^q-1\.0\n$/],
    ['table', 0, /^one\n\ttwo\n$/],
  ])('prints a log as %s', async (format, code, out) => {
    const ran = await ctl('logs', 'q-1', '-o', format);
    expect(ran.out).toMatch(out);
    expect(ran.code).toBe(code);
    const followed = await ctl('logs', 'q-1', '-f', '-o', format);
    if (format !== 'table') expect(followed).toMatchObject({ code: 2, out: '' });
  });

  it('asks below the path of --server', async () => {
    expect((await run('ctl', '--server', `${url}/gateway/`, 'nodes', '-o', 'name')).out).toBe('far\n');
  });

  it('forgets no machine whose name only begins so', async () => {
    const ran = await ctl('nodes', 'remove', 'n2-l', '--yes');
    expect(ran).toMatchObject({ code: 3, err: expect.stringContaining('n2-long') as string });
    expect(calls.some(({ method }) => method === 'DELETE')).toBe(false);
  });

  it('refuses to watch what cannot be watched', async () => {
    expect(await ctl('cordon', 'n1', '--watch')).toMatchObject({ code: 2, out: '' });
  });
});
