/**
 * The one promise of a drain, under faults: no request fails, no stream is cut, the model is never without a Ready replica, and the
 * original is stopped only when its streams have ended. `LLMGW_DRAIN_STREAM_SECONDS=60` makes the streams a minute long.
 */
import { afterEach, describe, expect, it } from 'vitest';
import type { ReplicaDetailView } from '../../src/admin-api/views/replicas.js';
import { Fleet, streamed, Traffic } from '../support/fleet.js';
import { adminGet } from '../support/llmgw-process.js';
import { isAlive } from '../support/is-alive.js';
import { mustHold, waitFor } from '../support/wait-for.js';

const STREAM_SECONDS = Number(process.env['LLMGW_DRAIN_STREAM_SECONDS'] ?? 15);
const TOKEN_MS = 100;

const config = (control = ''): string => `
control:
  interval: 200ms
  settleAfterStart: 5s
  steadyAfter: 2s
  unreachableAfter: 3s
  lostAfter: 60s
${control}
models:
  - name: m1
    profiles:
      - name: sim
        engine: sim
        gpus: 1
        args: ["--ttft-ms", "20", "--tpot-ms", "${TOKEN_MS}", "--startup-ms", "1500", "--slots", "256"]
`;

describe('50 streams and 10 new requests a second while their only node is drained', () => {
  let fleet: Fleet;
  let traffic: Traffic;
  let pid = 0;

  const start = async (): Promise<void> => {
    fleet = await Fleet.start({ config: config(), nodes: { n1: {} } });
    const [original] = await fleet.settled('n1');
    const detail = await adminGet<ReplicaDetailView>(fleet.urls, `replicas/${original?.id}`);
    pid = detail.shards[0]?.pid ?? 0;
    await fleet.addNode('n2', {});
    const longTokens = (STREAM_SECONDS * 1_000) / TOKEN_MS;
    traffic = new Traffic(fleet, 'm1', { long: 50, longTokens, perSecond: 10 });
    await waitFor(async () => ((await fleet.replicas())[0]?.inflight ?? 0) >= 50, {
      deadlineMs: 60_000,
      what: 'the streams to run',
    });
  };

  afterEach(() => fleet.dispose());

  /** The engine that the streams hang on must live until the last of them has ended. */
  const wholeLong = async (): Promise<ReadonlySet<string>> => {
    const all = Promise.all(traffic.long);
    let ended = false;
    void all.then(() => (ended = true));
    const allEnded = () =>
      waitFor(() => ended, { deadlineMs: 20_000, what: 'streams whose engine has gone to be at their end' });
    await waitFor(
      async () => {
        // The last bytes may still be on their way to here.
        if (!ended && !isAlive(pid)) await mustHold(allEnded);
        return ended;
      },
      { deadlineMs: (STREAM_SECONDS + 60) * 1_000, what: 'the streams to end' },
    );
    return new Set(await all);
  };

  const nothingLost = async (): Promise<void> => {
    expect(await wholeLong()).toEqual(new Set(['whole']));
    await fleet.drained('n1');
    expect(await traffic.end()).toEqual({ long: new Set(['whole']), short: new Set(['whole']) });
    expect(traffic.fewestReady, JSON.stringify(traffic.worst)).toBeGreaterThanOrEqual(1);
    await fleet.settled('n2');
    expect(() => process.kill(pid, 0)).toThrow();
    expect(await fleet.events('NodeDrained')).toHaveLength(1);
    for (const type of ['StreamGraceOver', 'DrainDeadline', 'RequestsEnded', 'GapNotAllowed'])
      expect(await fleet.events(type), type).toEqual([]);
  };

  it('loses nothing, and does what its plan said', async () => {
    await start();
    const plan = await fleet.schedule('n1', { target: 'drained' }, '?plan=true');
    expect(plan).toMatchObject({
      changed: false,
      gapExpected: false,
      moves: [{ target: { profile: 'sim', shards: [{ nodeId: 'n2', gpuUuids: ['GPU-n2-0'] }] }, gapMs: 0 }],
    });
    const waiting = fleet.ctlProcess('drain', 'n1', '--wait', '--reason', 'new fan', '--yes');
    await nothingLost();
    expect((await waiting.ended()).code).toBe(0);
    expect(waiting.stderr).toMatch(/draining n1 moves 1 replica/);
    expect(waiting.stderr).toMatch(/must be Ready and steady first: (starting|loading) on n2 \(at most \d/);
    expect(waiting.stderr).toMatch(/5\d requests in flight \(at most 1[45]m/);
    expect(waiting.stderr).toMatch(/gone from n1\n(.*\n)*n1: drained, waited/);

    const [before] = plan.moves;
    const [now] = await fleet.replicas();
    const detail = await adminGet<ReplicaDetailView>(fleet.urls, `replicas/${now?.id}`);
    expect(detail).toMatchObject({
      profile: before?.target?.profile,
      shards: before?.target?.shards.map(({ nodeId, gpuUuids }) => ({ nodeId, gpuUuids })),
      generation: 1,
    });
    const left = (await fleet.events('ReplicaDraining')).map(({ subject, reason }) => [
      subject.id,
      reason.code,
    ]);
    expect(left).toEqual([[before?.replicaId, 'replaced']]);
  });

  it.each([
    ['the drained node', 'n1'],
    ['the target', 'n2'],
  ])('loses nothing when the link to the agent of %s is cut and healed in between', async (_name, id) => {
    await start();
    await fleet.schedule('n1', { target: 'drained' });
    await waitFor(async () => (await fleet.replicas()).length === 2, {
      deadlineMs: 20_000,
      what: 'the replacement to be placed',
    });
    fleet.link(id).cut();
    await waitFor(async () => (await fleet.node(id)).state === 'unreachable', {
      deadlineMs: 20_000,
      what: 'the node to be missed',
    });
    expect((await fleet.node('n1')).scheduling).toMatchObject({ state: 'draining' });
    fleet.link(id).heal();
    await nothingLost();
  });

  it('loses no move and no engine when the server is killed in between', async () => {
    await start();
    await fleet.schedule('n1', { target: 'drained', reason: 'new fan' });
    await waitFor(async () => (await fleet.replicas()).length === 2, {
      deadlineMs: 20_000,
      what: 'the replacement to be placed',
    });
    await fleet.crashServer();
    // Streams through a killed gateway cannot go on; what comes after it must not notice the drain.
    const short = await traffic.end();
    expect([...short.long].every((one) => one.startsWith('broken'))).toBe(true);
    expect((await fleet.node('n1')).scheduling).toMatchObject({ target: 'drained', reason: 'new fan' });
    traffic = new Traffic(fleet, 'm1', { long: 50, longTokens: 50, perSecond: 10 });
    await fleet.drained('n1');
    expect(await traffic.end()).toEqual({ long: new Set(['whole']), short: new Set(['whole']) });
    await fleet.settled('n2');
    expect(await streamed(fleet.urls.client, 'm1', 3)).toBe('whole');
  });
});
