import { request, type IncomingMessage } from 'node:http';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ControlServer, simModel } from '../../test/support/control-server.js';
import { testGpu } from '../../test/support/fake-agent.js';
import { waitFor } from '../../test/support/wait-for.js';

let server: ControlServer;
afterEach(() => server.dispose());

async function start(replicas: number): Promise<void> {
  server = await ControlServer.start({ models: [simModel('m1', { replicas }, { gpus: 1 })] });
  await server.join('node-1', { gpus: [testGpu('GPU-a'), testGpu('GPU-b')] });
  await waitFor(async () => (await server.admin('nodes/node-1')).json?.state === 'connected', {
    deadlineMs: 20_000,
    what: 'the node',
  });
}

const put = (path: string, body: unknown) => server.admin(path, { method: 'PUT', body });
const schedule = (body: unknown) => put('nodes/node-1/scheduling', body);
const audit = async () =>
  ((await server.admin('audit')).json.items as { action: string; target: string; outcome: string }[]).map(
    ({ action, target, outcome }) => `${action} ${target} ${outcome}`,
  );

describe('what is asked of one device', () => {
  beforeEach(() => start(0));

  // A cordoned machine was open again for all but the device that somebody drained on it.
  it.each(['cordoned', 'drained'])('leaves a machine alone that is %s as a whole', async (target) => {
    await schedule({ target });
    for (const asked of ['drained', 'cordoned', 'schedulable']) {
      const answer = await schedule({ target: asked, gpu: 'GPU-a' });
      expect(answer.status).toBe(409);
      expect(answer.json.error).toMatchObject({ code: 'conflict', field: 'gpu' });
      expect(answer.json.error.message).toBe(`node node-1 is ${target} as a whole, GPU-a with it`);
    }
    expect((await server.admin('nodes/node-1')).json.scheduling).toMatchObject({ target, sequence: 1 });
    const refused = ['uncordon', 'cordon', 'drain'].map((action) => `${action} node-1/GPU-a refused`);
    expect((await audit()).slice(0, 3)).toEqual(refused);
  });

  it('ends when something is asked of the whole machine, which is told', async () => {
    await schedule({ target: 'drained', gpu: 'GPU-a' });
    const cordoned = await schedule({ target: 'cordoned' });
    expect(cordoned.json.notes[0]).toBe('this takes the place of: GPU-a drained by local');
    const back = await schedule({ target: 'schedulable' });
    expect(back.json.notes).toEqual(['node-1 takes new replicas again']);
  });
});

describe('a change that is refused', () => {
  it('is in the audit log with what was asked, and a plan is not', async () => {
    await start(1);
    await waitFor(async () => (await server.admin('models/m1')).json.ready === 1, { deadlineMs: 20_000 });
    expect((await schedule({ target: 'drained' })).status).toBe(409);
    expect((await put('nodes/node-1/scheduling?plan=true', { target: 'drained' })).status).toBe(200);
    expect((await server.admin('nodes/node-1', { method: 'DELETE' })).status).toBe(409);
    const token = await server.admin('tokens', { method: 'POST', body: { name: 'bob', role: 'viewer' } });
    expect(token.status).toBe(409);
    await put('models/m1/scale', { replicas: 9 });
    const pending = await waitFor(
      async () =>
        ((await server.admin('replicas')).json.items as { id: string; nodes: string[] }[]).find(
          ({ nodes }) => nodes.length === 0,
        ),
      { deadlineMs: 20_000, what: 'a replica without a place' },
    );
    const path = `replicas/${pending.id}/restart`;
    expect((await server.admin(path, { method: 'POST', body: {} })).status).toBe(409);
    expect(await audit()).toEqual([
      `restart ${pending.id} refused`,
      'scale m1 ok',
      'create token bob refused',
      'remove-node node-1 refused',
      'drain node-1 refused',
    ]);
  });
});

describe('a machine', () => {
  it('is removed by its whole name only: what begins so is another', async () => {
    await start(0);
    const answer = await server.admin('nodes/node-', { method: 'DELETE' });
    expect(answer.status).toBe(404);
    expect(answer.json.error.message).toContain('did you mean node-1?');
    expect((await server.admin('nodes')).json.items).toHaveLength(1);
  });
});

describe('a parameter', () => {
  beforeEach(() => start(0));

  // What was to be shown was done: `plan=1` and `plan=TRUE` were read as no.
  it.each([
    ['plan=banana', 400, 'plan: expected true or false'],
    ['plan=TRUE', 400, 'plan: expected true or false'],
    ['plan=true&plan=false', 400, 'plan: expected true or false'],
    ['dryRun=true', 400, 'there is no parameter "dryRun" here'],
    ['pln', 400, 'there is no parameter "pln" here (did you mean "plan"?)'],
    ['plan=1', 400, 'plan: expected true or false'],
    ['plan', 200, ''],
  ])('that says whether to do it or to show it: ?%s', async (query, status, message) => {
    const answer = await put(`nodes/node-1/scheduling?${query}`, { target: 'cordoned' });
    expect(answer.status).toBe(status);
    if (status !== 200) expect(answer.json.error).toMatchObject({ code: 'invalid_argument', message });
    expect((await server.admin('nodes/node-1')).json.scheduling).toMatchObject({ target: 'schedulable' });
  });

  it.each([
    ['PUT', 'models/m1/scale?plan=true', { replicas: 1 }],
    ['DELETE', 'nodes/node-1?plan', undefined],
    ['GET', 'nodes?selector=a', undefined],
    ['GET', 'replicas?model=m1&model=m2', undefined],
    ['GET', 'placements/m1/explain?replica=a&replica=b', undefined],
    ['GET', 'events?follow=yes', undefined],
    ['GET', 'models/%zz', undefined],
    ['GET', `nodes/${'x'.repeat(600)}`, undefined],
  ])('%s %s is refused in the form of all errors', async (method, path, body) => {
    const answer = await server.admin(path, { method, ...(body === undefined ? {} : { body }) });
    expect(answer.status).toBe(400);
    expect(answer.json).toMatchObject({ error: { code: 'invalid_argument' } });
  });

  it('means nothing to probes, which may add what they like', async () => {
    expect((await server.admin('/livez?source=balancer')).status).toBe(200);
  });

  it('and a body that is too large is refused as that', async () => {
    const answer = await server.admin('config/plan', {
      method: 'POST',
      rawBody: JSON.stringify({ text: ' '.repeat(1024 * 1024) }),
      headers: { 'content-type': 'application/json' },
    });
    expect([answer.status, answer.json.error]).toEqual([
      413,
      { code: 'request_too_large', message: 'the body is larger than 1MiB' },
    ]);
  });
});

describe('events', () => {
  beforeEach(() => start(0));

  async function followed(path: string, headers: Record<string, string>, until: string): Promise<string> {
    const [host = '', port = ''] = server.server.addresses.admin.split(':');
    const response = await new Promise<IncomingMessage>((resolve, reject) => {
      request({ host, port, path, headers }, resolve).on('error', reject).end();
    });
    let text = '';
    response.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
    await waitFor(() => text.includes(until), { deadlineMs: 20_000, what: until });
    response.destroy();
    return text;
  }

  // After the state was put back the numbers begin earlier, and the reader waited for ones that were hours away.
  it.each(['999999', '', 'x', '-1'])('are not waited for in vain after the id "%s"', async (id) => {
    const text = await followed('/admin/v1/events?follow=true', { 'last-event-id': id }, 'NodeConnected');
    expect(text).toMatch(/^id: \d+\ndata: \{/);
  });

  it('that come are told whatever the address said at first', async () => {
    const following = followed('/admin/v1/events?follow=true&after=999999', {}, 'NodeCordoned');
    await schedule({ target: 'cordoned' });
    expect(await following).toContain('NodeCordoned');
  });
});
