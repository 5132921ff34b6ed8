import { request } from 'node:http';
import { afterEach, describe, expect, it } from 'vitest';
import { ControlServer, simModel } from '../../test/support/control-server.js';
import type { FakeAgent } from '../../test/support/fake-agent.js';
import { waitFor } from '../../test/support/wait-for.js';
import { EVENT_LOG, type EventLog } from '../events/event-log.js';

let server: ControlServer;
afterEach(() => server.dispose());

/** The log request an agent got as its `index`th. */
const logQuery = (agent: FakeAgent, index: number) =>
  waitFor(
    () => agent.received.flatMap((message) => (message.kind === 'fetchLogs' ? [message.request] : []))[index],
  );

describe('logs', () => {
  it('come from the agent, whole or followed, by shard or replica', async () => {
    server = await ControlServer.start({ models: [simModel('m1')] });
    const agent = await server.join('node-1');
    await waitFor(async () => (await server.admin('models/m1')).json.ready === 1);
    const [replica] = (await server.admin('replicas')).json.items;
    const asked = server.admin(`shards/${replica.id}/logs?tail=5`);
    const { request: query } = await agent.next('fetchLogs');
    expect(query).toMatchObject({ tailLines: 5, follow: false });
    agent.log(query.requestId, 'one\n');
    agent.log(query.requestId, 'two\n', true);
    expect((await asked).json).toMatchObject({ shardId: query.shardId, text: 'one\ntwo\n' });
    // The run before was elsewhere, and only the timeline knows where.
    const other = await server.join('node-2');
    server.server.app.get<EventLog>(EVENT_LOG, { strict: false }).append({
      type: 'ReplicaPlaced',
      subject: { kind: 'replica', id: replica.id },
      reason: { code: 'test', message: 'test' },
      actor: 'test',
      related: [{ kind: 'node', id: 'node-2' }],
    });
    const before = server.admin(`shards/${replica.id}/logs?previous=true`);
    const here = await logQuery(agent, 1);
    expect(here).toMatchObject({ previous: true });
    agent.noLog(here.requestId, 'no previous output here');
    const there = await logQuery(other, 0);
    expect(there).toMatchObject({ previous: false, shardId: query.shardId });
    other.log(there.requestId, 'before\n', true);
    expect((await before).json).toEqual({ shardId: query.shardId, nodeId: 'node-2', text: 'before\n' });
    const nowhere = server.admin(`shards/${replica.id}/logs?previous=true`);
    other.leave();
    agent.noLog((await logQuery(agent, 2)).requestId, 'none here');
    expect((await nowhere).json.error).toMatchObject({
      code: 'conflict',
      message: expect.stringMatching(/node-1: none here; node-2: .*not connected/) as string,
    });
    agent.leave();
    await waitFor(
      async () => (await server.admin(`shards/${query.shardId}/logs`)).json.error?.code === 'conflict',
    );
    expect((await server.admin('shards/nope/logs')).status).toBe(404);
  });

  it('that are followed end with the engine, and break off with the agent', async () => {
    server = await ControlServer.start({ models: [simModel('m1')] });
    const agent = await server.join('node-1');
    await waitFor(async () => (await server.admin('models/m1')).json.ready === 1);
    const [replica] = (await server.admin('replicas')).json.items;
    const [host = '', port = ''] = server.server.addresses.admin.split(':');
    const path = `/admin/v1/shards/${replica.id}/logs?follow=true`;
    let text = '';
    const follow = (): Promise<{ status: number | undefined; whole: boolean }> => {
      text = '';
      return new Promise((resolve, reject) => {
        const outgoing = request({ host, port, path }, (response) => {
          response.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
          response.on('error', () => {});
          response.on('close', () => resolve({ status: response.statusCode, whole: response.complete }));
        });
        outgoing.on('error', reject).end();
      });
    };
    const none = follow();
    agent.noLog((await logQuery(agent, 0)).requestId, 'no output here');
    expect(await none).toEqual({ status: 404, whole: true });
    expect(text).toContain('no output here');
    const whole = follow();
    const { requestId } = await logQuery(agent, 1);
    agent.log(requestId, 'one\n');
    agent.log(requestId, 'two\n', true);
    expect([await whole, text]).toEqual([{ status: 200, whole: true }, 'one\ntwo\n']);
    const broken = follow();
    agent.log((await logQuery(agent, 2)).requestId, 'three\n');
    await waitFor(() => text === 'three\n', { what: 'the first line' });
    agent.leave();
    expect(await broken).toEqual({ status: 200, whole: false });
  });
});
