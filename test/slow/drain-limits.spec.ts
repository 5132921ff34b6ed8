/** What ends a drain otherwise than well: no spare, streams without end, deadlines, second thoughts. */
import { createServer } from 'node:net';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { SchedulingResultView } from '../../src/admin-api/views/nodes.js';
import { Fleet, streamed } from '../support/fleet.js';
import { waitFor } from '../support/wait-for.js';

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  return typeof address === 'object' && address !== null ? address.port : 0;
}

const config = (profile: string, control = ''): string => `
control: { interval: 200ms, settleAfterStart: 5s, steadyAfter: 1s, unreachableAfter: 3s${control} }
models:
  - name: m1
    profiles:
      - { name: sim, engine: sim, gpus: 1, ${profile} }
`;
const args = (startupMs: number): string =>
  `args: ["--ttft-ms", "20", "--tpot-ms", "50", "--startup-ms", "${startupMs}"]`;

describe('a drain with no room beside what runs', () => {
  let fleet: Fleet;
  afterEach(() => fleet.dispose());

  it('is refused with its plan; with leave the gap is about as long as predicted', async () => {
    // One port for engines: a second copy has room on the other device only once the first has ended.
    const port = await freePort();
    fleet = await Fleet.start({
      config: config(args(8_000), `, portRange: [${port}, ${port}]`),
      nodes: { n1: { gpus: 2 } },
    });
    const [before] = await fleet.settled('n1');
    const { gpuDevices } = await fleet.node('n1');
    const gpu = gpuDevices.find(({ heldBy }) => heldBy.length > 0)?.uuid ?? '';
    const plan = await fleet.ctl('drain', 'n1', '--gpu', gpu, '--plan', '-o', 'json');
    expect(plan.code).toBe(0);
    const { moves, gapExpected } = JSON.parse(plan.stdout) as SchedulingResultView;
    expect({ moves, gapExpected }).toMatchObject({
      gapExpected: true,
      moves: [{ replicaId: before?.id, stopFirst: true, target: { shards: [{ nodeId: 'n1' }] } }],
    });
    const refused = await fleet.ctl('drain', 'n1', '--gpu', gpu, '--yes');
    expect(refused.code).toBe(7);
    expect(refused.stderr).toMatch(/draining n1 moves 1 replica/);
    expect(refused.stderr).toMatch(/without a serving replica.*once m1-\w+ has stopped/);
    expect(refused.stderr).toContain('--allow-gap');
    expect((await fleet.node('n1')).scheduling.target).toBe('schedulable');

    const drained = await fleet.ctl('drain', 'n1', '--gpu', gpu, '--allow-gap', '--wait', '--yes');
    expect(drained.code).toBe(0);
    const [after] = await fleet.settled('n1');
    expect(after?.id).not.toBe(before?.id);
    const [gone] = await fleet.events('ReplicaDraining');
    expect(gone).toMatchObject({ subject: { id: before?.id }, reason: { code: 'stop_first' } });
    const ready = (await fleet.events('ReplicaReady')).find(({ subject }) => subject.id === after?.id);
    const measuredMs = Date.parse(ready?.at ?? '') - Date.parse(gone?.at ?? '');
    const predictedMs = moves[0]?.gapMs ?? 0;
    expect(Math.abs(measuredMs - predictedMs), `${measuredMs} of ${predictedMs}`).toBeLessThan(
      0.2 * predictedMs,
    );
  });

  it('keeps serving and says so when the general deadline passes without leave', async () => {
    fleet = await Fleet.start({
      config: config(args(500), ', drainDeadline: 5s').replace(
        'profiles:',
        'replicas: 2\n    placement: { antiAffinity: true }\n    profiles:',
      ),
      nodes: { n1: {}, n2: {} },
    });
    await fleet.settled('n1', 'n2');
    const waited = await fleet.ctl('drain', 'n1', '--wait', '--yes');
    expect(waited.code).toBe(6);
    expect(waited.stderr).toMatch(/no place to move it to; it goes on serving: n1 is drained by/);
    expect(waited.stderr).toMatch(/the deadline of the drain of n1 is over and it has not ended/);
    await waitFor(async () => (await fleet.events('GapNotAllowed')).length === 1, {
      deadlineMs: 20_000,
      what: 'the event of the copy',
    });
    await waitFor(
      async () => (await fleet.events('DrainDeadline')).map(({ subject }) => subject.id).join() === 'n1',
      { deadlineMs: 20_000, what: 'the event of the machine' },
    );
    await fleet.settled('n1', 'n2');
    const shown = await fleet.ctl('node', 'n1');
    expect(shown.stdout).toMatch(/draining \(past its deadline, by local\)/);
    expect(shown.stdout).toMatch(/Draining waits for\n +m1-\w+: the deadline of the drain is over/);
    await fleet.schedule('n1', { target: 'schedulable' });
    await fleet.settled('n1', 'n2');
  });
});

describe('the bounds of a drain', () => {
  let fleet: Fleet;
  const wait = (id: string, ...words: readonly string[]) =>
    fleet.ctl('drain', id, '--wait', '--yes', ...words);
  /** Where the one copy stands once all is quiet, and the other node. */
  const home = async () => {
    const [copy] = await waitFor(
      async () => {
        const now = await fleet.replicas();
        return now.length === 1 && now[0]?.published === true ? now : undefined;
      },
      { deadlineMs: 60_000, what: 'one Ready copy' },
    );
    const [id = ''] = copy?.nodes ?? [];
    return { copy, id, spare: id === 'n1' ? 'n2' : 'n1' };
  };
  const running = (requests: number) =>
    waitFor(async () => (await fleet.replicas())[0]?.inflight === requests, {
      deadlineMs: 20_000,
      what: 'the stream to run',
    });

  beforeAll(async () => {
    fleet = await Fleet.start({
      // Long enough for what is done while a replacement loads, also where a command takes a second to start.
      config: config(args(6_000)),
      nodes: { n1: {} },
    });
    await fleet.settled('n1');
    await fleet.addNode('n2', {});
  });
  afterAll(() => fleet.dispose());

  afterEach(async () => {
    for (const id of ['n1', 'n2']) await fleet.schedule(id, { target: 'schedulable' });
  });

  it('of an idle machine are none: it ends with 0, and asked again there is nothing to do', async () => {
    const { id, spare } = await home();
    const drained = await wait(id);
    expect(drained.stderr).toContain(`${id}: drained, waited`);
    expect(drained.code).toBe(0);
    const again = await wait(id);
    expect(again.code).toBe(0);
    expect(again.stderr).toContain(`nothing runs on ${id}`);
    expect(await fleet.schedule(id, { target: 'drained' })).toMatchObject({ changed: false });
    await fleet.settled(spare);
  });

  it('a stream that never ends is cut at the grace, with an error event', async () => {
    const { id } = await home();
    const endless = streamed(fleet.urls.client, 'm1', 2_000);
    await running(1);
    const drained = await wait(id, '--stream-grace', '5s');
    expect(drained.stderr).toMatch(/1 request in flight \(at most (?:5s|[1-4](?:\.\d)?s|\d+ms) more\)/);
    expect(drained.stderr).toMatch(/1 request still in flight after \d s/);
    expect(drained.code).toBe(6);
    const outcome = await endless;
    expect(outcome).toMatch(/^200 [^]*data: {"error":{[^\n]*"code":"shutting_down"[^\n]*}}\n\n$/);
    expect(outcome).not.toContain('[DONE]');
    expect(await fleet.events('StreamGraceOver')).toHaveLength(1);
  });

  it('at a deadline given by hand the machine goes, with or without a new copy', async () => {
    const { id, spare } = await home();
    // It loads for longer than that, as the plan knows.
    const refused = await wait(id, '--deadline', '2s');
    expect(refused.stderr).toMatch(/Ready only about \d+ s after the deadline/);
    expect(refused.code).toBe(7);
    const drained = await wait(id, '--deadline', '2s', '--allow-gap');
    expect(drained.stderr).toContain('the deadline of the drain is over');
    expect(drained.code).toBe(6);
    const over = await fleet.events('DrainDeadline');
    expect(over.map(({ subject }) => subject.kind)).toContain('replica');
    await fleet.settled(spare);
  });

  it('interrupting the wait cancels nothing, uncordon does, and nothing is restarted', async () => {
    const { id, copy } = await home();
    const waiting = fleet.ctlProcess('drain', id, '--wait', '--yes');
    await waitFor(() => waiting.stderr.includes('must be Ready'), {
      deadlineMs: 20_000,
      what: 'the wait to tell',
    });
    waiting.signal('SIGINT');
    expect((await waiting.ended()).code).toBe(130);
    expect(waiting.stderr).toContain(`the drain goes on; \`llmgw ctl uncordon ${id}\` cancels it`);
    expect((await fleet.node(id)).scheduling).toMatchObject({ target: 'drained', state: 'draining' });

    expect((await fleet.ctl('uncordon', id)).code).toBe(0);
    const [kept] = await fleet.settled(id);
    expect([kept?.id, kept?.generation]).toEqual([copy?.id, copy?.generation]);
  });

  it('uncordon while the streams end keeps one copy, whichever serves, and cuts none', async () => {
    const { id } = await home();
    const open = streamed(fleet.urls.client, 'm1', 400);
    await running(1);
    await fleet.schedule(id, { target: 'drained' });
    const during = await waitFor(
      async () => {
        const now = await fleet.replicas();
        return now.some(({ state }) => state === 'draining') ? now : undefined;
      },
      { deadlineMs: 30_000, what: 'the original to leave the router' },
    );
    await fleet.schedule(id, { target: 'schedulable' });
    expect(await open).toBe('whole');
    const { copy } = await home();
    expect(during.map(({ id: one, generation }) => `${one}@${generation}`)).toContain(
      `${copy?.id}@${copy?.generation}`,
    );
    expect(await streamed(fleet.urls.client, 'm1', 3)).toBe('whole');
  });

  it('a cordon moves nothing; of two drains at once the second waits with a reason', async () => {
    const { id, spare, copy } = await home();
    await fleet.schedule(id, { target: 'cordoned' });
    const first = await fleet.schedule(id, { target: 'cordoned', reason: 'again' });
    expect(first).toMatchObject({ changed: false });
    expect((await home()).copy).toMatchObject({ id: copy?.id, generation: copy?.generation });

    await fleet.schedule(id, { target: 'drained' });
    await waitFor(async () => (await fleet.replicas()).length === 2, {
      deadlineMs: 20_000,
      what: 'the replacement',
    });
    await fleet.schedule(spare, { target: 'drained' });
    await waitFor(
      async () => {
        const { scheduling } = await fleet.node(id);
        return scheduling.waitingFor[0]?.reason.code === 'no_target';
      },
      { deadlineMs: 30_000, what: 'the first to say that there is no place left' },
    );
    expect(await streamed(fleet.urls.client, 'm1', 3)).toBe('whole');
    await fleet.schedule(spare, { target: 'schedulable' });
    await fleet.drained(id);
    await fleet.settled(spare);
  });
});
