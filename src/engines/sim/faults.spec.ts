import { readFile } from 'node:fs/promises';
import { afterEach, describe, expect, it } from 'vitest';
import { eventData, type ParsedResponse } from '../../../test/support/http-responses.js';
import { RawClient } from '../../../test/support/raw-client.js';
import { waitFor } from '../../../test/support/wait-for.js';
import { directivesFor, FaultBook, FAULTS, parseFaults } from './faults.js';
import { SimEngine } from './sim-engine.js';

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0)) await cleanup();
});

async function open(name = 'a'): Promise<{ engine: SimEngine; client: RawClient }> {
  const engine = new SimEngine({ models: ['m1'], name });
  cleanups.push(() => engine.stop());
  await engine.start();
  return { engine, client: await connect(engine) };
}

async function connect(engine: SimEngine): Promise<RawClient> {
  const client = await RawClient.connect(engine.port);
  cleanups.push(() => client.destroy());
  return client;
}

const PATH = '/v1/chat/completions';
const chat = (more: object = {}, text = 'hi') => ({
  model: 'm1',
  messages: [{ role: 'user', content: text }],
  max_tokens: 8,
  ...more,
});

/** Events of a normal stream of this request: role, 8 tokens, finish, done. */
const EVENTS = 11;

/** Sends a request that is to suffer `fault` and waits until the answer, or the connection, is over. */
async function suffer(
  fault: string,
  stream = true,
): Promise<{ client: RawClient; response: ParsedResponse | undefined }> {
  const { client } = await open();
  await client.post(PATH, chat({ stream }), { 'x-sim-fault': fault });
  await waitFor(() => client.ending !== 'open' || client.responses()[0]?.complete === true);
  return { client, response: client.responses()[0] };
}

async function normalAnswer(stream: boolean): Promise<string> {
  const { client } = await open();
  await client.post(PATH, chat({ stream }));
  return (await client.response()).body.toString();
}

/** The stream without what differs between two requests. */
const comparable = (body: string) =>
  body.replaceAll(/"(id|created)":("[^"]*"|\d+)/g, '').replaceAll(/\{ +/g, '{');

describe('fault specs', () => {
  it('read names, arguments and several at once', () => {
    expect(parseFaults('stall=3,200; close-after')).toEqual({
      faults: [
        { name: 'stall', args: ['3', '200'] },
        { name: 'close-after', args: [] },
      ],
    });
    expect(parseFaults('stal=3')).toHaveProperty('problem', expect.stringContaining('unknown fault "stal"'));
    expect(parseFaults(' ; ')).toHaveProperty('problem');
    expect(parseFaults('toString')).toHaveProperty('problem');
  });

  it('pick the directives for one engine', () => {
    expect(directivesFor('a', [':hang', '@a:drip=1', '@b:burst'])).toEqual(['hang', 'drip=1']);
  });

  it('count standing faults down, by path when they have one', () => {
    const book = new FaultBook();
    const faults = [{ name: 'hang', args: [] }] as const;
    book.add({ faults, spec: 'hang', left: 2, path: undefined });
    book.add({ faults: [{ name: 'burst', args: [] }], spec: 'burst', left: undefined, path: '/health' });
    expect(book.take('/metrics', false)).toEqual([]);
    expect(book.take('/health', false)).toHaveLength(1);
    expect([book.take(PATH, true), book.take(PATH, true), book.take(PATH, true)]).toEqual([
      faults,
      faults,
      [],
    ]);
    expect(book.take('/health', false)).toHaveLength(1);
  });
});

describe('ways in', () => {
  it('a directive in the last message works through any gateway and leaves the text as it was', async () => {
    const { engine, client } = await open();
    await client.post(PATH, chat({ stream: true }, '[[fault:no-done]]hi'));
    const response = await client.response();
    const normal = await normalAnswer(true);
    expect(comparable(response.body.toString())).toBe(comparable(normal).replace('data: [DONE]\n\n', ''));
    expect(engine.requests()[0]?.faults).toEqual(['no-done']);
  });

  it('a directive can be meant for one engine only', async () => {
    const { engine, client } = await open('a/0');
    await client.post(PATH, chat({}, '[[fault@b-1/0.x:status=500]]hi'));
    expect((await client.response(0)).status).toBe(200);
    await client.post(PATH, chat({}, '[[fault@a/0:status=500]]hi'));
    expect((await client.response(1)).status).toBe(500);
    expect(engine.stats().faulted).toBe(1);
  });

  it('an admin call sets, lists and clears them', async () => {
    const { engine, client } = await open();
    const admin = async (method: string, body?: object) => {
      const init = body === undefined ? { method } : { method, body: JSON.stringify(body) };
      const response = await fetch(`${engine.url}/sim/faults`, init);
      return [response.status, await response.json()] as const;
    };
    expect(await admin('POST', { fault: 'status=503', count: 1 })).toMatchObject([
      200,
      { faults: [{ left: 1 }] },
    ]);
    await client.post(PATH, chat());
    await client.post(PATH, chat());
    expect([(await client.response(0)).status, (await client.response(1)).status]).toEqual([503, 200]);
    await admin('POST', { fault: 'hang', path: '/health' });
    expect(await admin('GET')).toMatchObject([200, { faults: [{ spec: 'hang' }] }]);
    expect(await admin('DELETE')).toMatchObject([200, { faults: [] }]);
    expect((await fetch(`${engine.url}/health`)).status).toBe(200);
    expect((await admin('POST', { fault: 'nonsense' }))[0]).toBe(400);
  });

  it('a wrong header spec is told, not ignored', async () => {
    const { response } = await suffer('nonsense=1');
    expect(response?.status).toBe(400);
    expect(response?.body.toString()).toContain('unknown fault');
  });
});

describe('faults instead of an answer', () => {
  it('hang: the request is read and nothing comes', async () => {
    const { engine, client } = await open();
    await client.post(PATH, chat(), { 'x-sim-fault': 'hang' });
    await waitFor(() => engine.stats().faulted === 1);
    expect(client.text).toBe('');
    expect(client.ending).toBe('open');
  });

  it('reset-before-headers: a reset without a byte', async () => {
    const { client } = await suffer('reset-before-headers');
    expect([client.text, client.ending]).toEqual(['', 'rst']);
  });

  it('refuse: this connection is reset, new ones are refused for a while', async () => {
    const { engine } = await open();
    const client = await connect(engine);
    await client.post(PATH, chat(), { 'x-sim-fault': 'refuse=60' });
    await client.waitClosed();
    await expect(RawClient.connect(engine.port)).rejects.toThrow('ECONNREFUSED');
    await waitFor(async () => (await fetch(`${engine.url}/health`)).status === 200);
  });

  it.each([
    ['status=418,short and stout', 418, undefined],
    ['retry-after=7', 429, '7'],
    ['status=503;retry-after=Wed, 21 Oct 2026 07:28:00 GMT', 503, 'Wed, 21 Oct 2026 07:28:00 GMT'],
  ])('%s', async (fault, status, retryAfter) => {
    const { response } = await suffer(fault);
    expect(response?.status).toBe(status);
    expect(response?.headers.get('retry-after')).toBe(retryAfter);
    expect(JSON.parse(response?.body.toString() ?? '')).toHaveProperty('error.code', status);
  });

  it('redirect', async () => {
    const { response } = await suffer('redirect=302,http://127.0.0.1:9/login');
    expect([response?.status, response?.headers.get('location')]).toEqual([302, 'http://127.0.0.1:9/login']);
  });
});

describe('faults in a stream', () => {
  it('headers-then-reset', async () => {
    const { client, response } = await suffer('headers-then-reset');
    expect(response?.status).toBe(200);
    expect(response?.body.length).toBe(0);
    expect(client.ending).not.toBe('open');
  });

  it.each([1, 3])(
    'reset-after-events=%i: that many whole events, then the end of the connection',
    async (count) => {
      const { client, response } = await suffer(`reset-after-events=${count}`);
      expect(eventData(response?.body ?? '')).toHaveLength(count);
      expect(response?.complete).toBe(false);
      expect(client.ending).not.toBe('open');
    },
  );

  it('clean-cut-after-events: the body is complete and nothing says what is missing', async () => {
    const { response } = await suffer('clean-cut-after-events=4');
    expect(eventData(response?.body ?? '')).toHaveLength(4);
    expect(response?.complete).toBe(true);
  });

  it('half-event-then-reset: the last event is cut inside', async () => {
    const { response } = await suffer('half-event-then-reset=2');
    const body = response?.body.toString() ?? '';
    expect(eventData(body)).toHaveLength(2);
    expect(body).toMatch(/data: \{"id":[^\n]+$/);
    expect(response?.complete).toBe(false);
  });

  it('error-first: an error is the first event of a 200', async () => {
    const { response } = await suffer('error-first');
    expect(response?.status).toBe(200);
    expect(JSON.parse(eventData(response?.body ?? '')[0] ?? '')).toHaveProperty('error.code', 500);
  });

  it('error-mid: an error after some events', async () => {
    const { response } = await suffer('error-mid=3');
    const events = eventData(response?.body ?? '');
    expect(JSON.parse(events[3] ?? '')).toHaveProperty('error');
    expect(events.slice(4)).toEqual(['[DONE]']);
  });

  it('stall: silence between two events, then the rest', async () => {
    const { client, response } = await suffer('stall=2,80');
    expect(eventData(response?.body ?? '')).toHaveLength(EVENTS);
    const gaps = client.arrivals
      .slice(1)
      .map((arrival, index) => arrival.atMs - (client.arrivals[index]?.atMs ?? 0));
    expect(Math.max(...gaps)).toBeGreaterThan(60);
  });

  it.each(['one-byte', 'split-utf8', 'burst', 'drip=0', 'giant-event=100000'])(
    '%s: other writes, the same answer',
    async (fault) => {
      const { client, response } = await suffer(fault);
      expect(comparable(response?.body.toString() ?? '')).toBe(comparable(await normalAnswer(true)));
      expect(response?.complete).toBe(true);
      if (fault === 'one-byte') expect(client.arrivals.length).toBeGreaterThan(50);
      if (fault === 'giant-event=100000') expect(response?.body.length).toBeGreaterThan(100_000);
      if (fault === 'burst') expect(response?.chunks.length).toBe(EVENTS);
    },
  );

  it('garbage: events whose JSON does not parse', async () => {
    const { response } = await suffer('garbage=2');
    const events = eventData(response?.body ?? '');
    expect(() => JSON.parse(events[2] ?? '') as unknown).toThrow();
    expect(() => JSON.parse(events[1] ?? '') as unknown).not.toThrow();
    const all = eventData((await suffer('garbage')).response?.body ?? '');
    expect(() => JSON.parse(all[0] ?? '') as unknown).toThrow();
  });

  it('no-done: the end mark is missing', async () => {
    const { response } = await suffer('no-done');
    expect(response?.body.toString()).not.toContain('[DONE]');
    expect(response?.complete).toBe(true);
  });

  it('comments-only: never a token, and the slot is freed when the client leaves', async () => {
    const { engine, client } = await open();
    await client.post(PATH, chat({ stream: true }), { 'x-sim-fault': 'comments-only=2' });
    await client.waitForText(': keep-alive\n\n');
    expect(client.text).not.toContain('data:');
    client.rst();
    await waitFor(() => engine.stats().running === 0);
  });

  it('close-after: says so and closes', async () => {
    const { client, response } = await suffer('close-after');
    expect(response?.headers.get('connection')).toBe('close');
    expect(response?.complete).toBe(true);
    expect(await client.waitClosed()).toBe('fin');
  });

  it('combine', async () => {
    const { response } = await suffer('one-byte;reset-after-events=2');
    expect(eventData(response?.body ?? '')).toHaveLength(2);
    expect(response?.complete).toBe(false);
  });

  it('free the slot and are in the log', async () => {
    const { engine, client } = await open();
    await client.post(PATH, chat({ stream: true }), { 'x-sim-fault': 'reset-after-events=2' });
    await client.waitClosed();
    expect(engine.stats()).toMatchObject({ running: 0, faulted: 1, abortedByClient: 0 });
    expect(engine.requests()[0]).toMatchObject({ outcome: 'faulted', faults: ['reset-after-events'] });
  });
});

describe('faults in a whole answer', () => {
  it('wrong-content-length: announces more than comes', async () => {
    const { client, response } = await suffer('wrong-content-length=25', false);
    expect(response?.complete).toBe(false);
    expect(Number(response?.headers.get('content-length')) - (response?.body.length ?? 0)).toBe(25);
    expect(client.ending).toBe('fin');
  });

  it.each(['reset-after-events=1', 'half-event-then-reset=1', 'clean-cut-after-events=1'])(
    '%s: a part of the body, then the end of the connection',
    async (fault) => {
      const { response } = await suffer(fault, false);
      expect(response?.body.length).toBeGreaterThan(0);
      expect(response?.complete).toBe(false);
    },
  );

  it.each(['one-byte', 'split-utf8', 'stall=1,20'])('%s: the same answer in the end', async (fault) => {
    const { response } = await suffer(fault, false);
    expect(comparable(response?.body.toString() ?? '')).toBe(comparable(await normalAnswer(false)));
  });

  it('garbage: a body that does not parse', async () => {
    const { response } = await suffer('garbage', false);
    expect(() => JSON.parse(response?.body.toString() ?? '') as unknown).toThrow();
  });
});

describe('keep-alive', () => {
  it('closes an idle connection after its time, and not while it works', async () => {
    const engine = new SimEngine({ models: ['m1'], keepAliveMs: 30, ttftMs: 120 });
    cleanups.push(() => engine.stop());
    await engine.start();
    const client = await connect(engine);
    await client.post(PATH, chat());
    await client.response();
    expect(await client.waitClosed()).toBe('fin');
  });

  it('never closes with 0', async () => {
    const engine = new SimEngine({ models: ['m1'], keepAliveMs: 0 });
    cleanups.push(() => engine.stop());
    await engine.start();
    const client = await connect(engine);
    await client.post(PATH, chat());
    await client.response(0);
    await client.post(PATH, chat());
    await client.response(1);
  });
});

it('the document names every fault as the code does', async () => {
  const text = await readFile(new URL('../../../docs/engine-programs.md', import.meta.url), 'utf8');
  const documented = [...text.matchAll(/^- `([\w-]+)` (.*)$/gm)].map((match) => [match[1], match[2]]);
  expect(documented).toEqual(Object.entries(FAULTS));
});
