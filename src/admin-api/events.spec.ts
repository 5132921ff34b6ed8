import { request, type IncomingMessage } from 'node:http';
import { afterEach, describe, expect, it } from 'vitest';
import { ControlServer, simModel } from '../../test/support/control-server.js';
import { runLlmgw } from '../../test/support/run-ctl.js';
import { waitFor } from '../../test/support/wait-for.js';
import { EVENT_LOG, EVENTS_MAX, type EventLog } from '../events/event-log.js';

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).toReversed()) await cleanup();
});

async function start(): Promise<ControlServer> {
  const server = await ControlServer.start({ models: [simModel('m1')] });
  cleanups.push(() => server.dispose());
  return server;
}

const logOf = (server: ControlServer): EventLog =>
  server.server.app.get<EventLog>(EVENT_LOG, { strict: false });

function tell(server: ControlServer, id: string, words = 'x'): number {
  const reason = { code: 'test', message: words };
  return logOf(server).append({ type: 'Tested', subject: { kind: 'gpu', id }, reason, actor: 'test' })
    .sequence;
}

interface Follower {
  readonly ids: number[];
  readonly response: IncomingMessage;
  readonly ended: () => boolean;
}

async function follow(
  server: ControlServer,
  query: string,
  headers: Record<string, string> = {},
  reads = true,
): Promise<Follower> {
  const [host = '', port = ''] = server.server.addresses.admin.split(':');
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    request({ host, port, path: `/admin/v1/events?follow=true${query}`, headers }, resolve)
      .on('error', reject)
      .end();
  });
  cleanups.push(() => response.destroy());
  const ids: number[] = [];
  let ended = false;
  let rest = '';
  const take = (chunk: string): void => {
    const parts = (rest + chunk).split('\n\n');
    rest = parts.pop() ?? '';
    for (const part of parts) ids.push(...[...part.matchAll(/^id: (\d+)$/gm)].map(([, id]) => Number(id)));
  };
  response.setEncoding('utf8');
  response.on('close', () => (ended = true));
  response.on('error', () => undefined);
  if (reads) response.on('data', take);
  else cleanups.push(() => response.off('data', take));
  return { ids, response, ended: () => ended };
}

const climbs = (ids: readonly number[]): boolean =>
  ids.every((id, at) => at === 0 || id > (ids[at - 1] ?? 0));

describe('a follower of events', () => {
  it('that was away for long gets all it missed, once and in order, and goes on live', async () => {
    const server = await start();
    const words = 'w'.repeat(400);
    const first = tell(server, 'g0', words);
    for (let n = 0; n < EVENTS_MAX - 1_000; n += 1) tell(server, `g${n}`, words);
    const follower = await follow(server, '', { 'last-event-id': String(first) });
    const last = tell(server, 'live');
    await waitFor(() => follower.ids.includes(last), { what: 'the last event', deadlineMs: 20_000 });
    expect(follower.ended()).toBe(false);
    expect(climbs(follower.ids)).toBe(true);
    expect(follower.ids.length).toBeGreaterThan(EVENTS_MAX - 1_000);
    expect(follower.ids).toEqual(follower.ids.map((_, at) => (follower.ids[0] ?? 0) + at));
    expect(follower.ids[0]).toBe(first + 1);
  });

  it('that reads nothing costs a bounded buffer, and misses nothing when it reads again', async () => {
    const server = await start();
    const from = logOf(server).newest;
    const follower = await follow(server, `&after=${from}`, {}, false);
    for (let n = 0; n < 3_000; n += 1) tell(server, `g${n}`, 'w'.repeat(2_000));
    const last = tell(server, 'live');
    const ids: number[] = [];
    follower.response.on('data', (chunk: string) => {
      ids.push(...[...chunk.matchAll(/^id: (\d+)$/gm)].map(([, id]) => Number(id)));
    });
    await waitFor(() => ids.at(-1) === last, { what: 'the last event', deadlineMs: 20_000 });
    expect(follower.ended()).toBe(false);
  });

  it('sees only what it asks for, live too, and first the last few of that', async () => {
    const server = await start();
    const wanted = tell(server, 'GPU-a');
    for (let n = 0; n < 700; n += 1) tell(server, 'GPU-b');
    const follower = await follow(server, '&kind=gpu&id=GPU-a');
    await waitFor(() => follower.ids.length > 0);
    tell(server, 'GPU-b');
    const later = tell(server, 'GPU-a');
    await waitFor(() => follower.ids.includes(later));
    expect(follower.ids).toEqual([wanted, later]);
  });

  it.each<[string, string, Record<string, string>]>([
    ['a number from another state', '&after=999999999', {}],
    ['an id that is none', '', { 'last-event-id': 'abc' }],
    ['an empty id', '', { 'last-event-id': '' }],
    ['a number beyond all', '', { 'last-event-id': '9'.repeat(40) }],
  ])('with %s is followed on from here', async (_what, query, headers) => {
    const server = await start();
    const follower = await follow(server, query, headers);
    const next = tell(server, 'GPU-a');
    await waitFor(() => follower.ids.includes(next));
    expect(climbs(follower.ids)).toBe(true);
    expect(follower.ended()).toBe(false);
  });

  it.each(['after=-1', 'after=1.5', 'limit=5001', 'limit=x', 'kind=gpus', 'follow=maybe', 'since=1'])(
    'is refused by the name of what is wrong: %s',
    async (query) => {
      const server = await start();
      const answer = await server.admin(`events?${query}`);
      expect(answer.status).toBe(400);
      expect(answer.text).toContain(query.split('=')[0]);
    },
  );
});

describe('a switch of a query', () => {
  it('that is not understood is refused: a drain that was to be shown must not be done', async () => {
    const server = await start();
    await server.join('n1');
    await waitFor(async () => (await server.admin('models/m1')).json.ready === 1);
    const drain = { method: 'PUT', body: { target: 'drained', allowGap: true } };
    for (const query of ['plan=1', 'plan=yes', 'plan=TRUE', 'plan=true&plan=false']) {
      const answer = await server.admin(`nodes/n1/scheduling?${query}`, drain);
      expect([query, answer.status]).toEqual([query, 400]);
      expect(answer.json.error.message).toContain('plan: expected true or false');
    }
    expect((await server.admin('nodes/n1/scheduling?plan', drain)).status).toBe(200);
    expect((await server.admin('nodes/n1')).json.scheduling.target).toBe('schedulable');
  });
});

describe('ctl events', () => {
  it('--about finds what happened to a quiet one long ago', async () => {
    const server = await start();
    tell(server, 'GPU-quiet', 'once upon a time');
    for (let n = 0; n < 1_500; n += 1) tell(server, 'GPU-loud');
    const url = `http://${server.server.addresses.admin}`;
    const ran = await runLlmgw('ctl', 'events', '--server', url, '--about', 'GPU-quiet');
    expect(ran).toMatchObject({ code: 0, err: '' });
    expect(ran.out).toContain('once upon a time');
    expect(ran.out).not.toContain('GPU-loud');
    const wide = await runLlmgw('ctl', 'events', '--server', url, '--about', 'GPU-quiet', '-o', 'wide');
    expect(wide.out).toMatch(/BY.*\n.*Tested.*gpu\/GPU-quiet.*test/s);
  });

  it('-f does not wait for a server that was never there', async () => {
    const ran = await runLlmgw('ctl', 'events', '-f', '--server', 'http://127.0.0.1:1');
    expect(ran.code).toBe(5);
  });
});
