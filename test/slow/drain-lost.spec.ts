/** Drains of machines that nobody can ask: Drained is said on a confirmed stop or a lost node, and on nothing less. */
import { afterEach, expect, it } from 'vitest';
import type { ReplicaDetailView } from '../../src/admin-api/views/replicas.js';
import { Fleet, streamed } from '../support/fleet.js';
import { adminGet } from '../support/llmgw-process.js';
import { mustHold, waitFor } from '../support/wait-for.js';

const CONFIG = `
control: { interval: 200ms, settleAfterStart: 5s, steadyAfter: 1s, unreachableAfter: 2s, lostAfter: 15s }
models:
  - name: m1
    profiles:
      - name: sim
        engine: sim
        gpus: 1
        args: ["--ttft-ms", "20", "--tpot-ms", "50", "--startup-ms", "500"]
`;

let fleet: Fleet;
afterEach(() => fleet.dispose());

it('a node that is lost before its stop is confirmed is drained only then, with a word, and exit code 1', async () => {
  fleet = await Fleet.start({ config: CONFIG, nodes: { n1: {} } });
  const [original] = await fleet.settled('n1');
  const { shards } = await adminGet<ReplicaDetailView>(fleet.urls, `replicas/${original?.id}`);
  const pid = shards[0]?.pid ?? 0;
  await fleet.addNode('n2', {});
  fleet.link('n1').cut();
  await waitFor(async () => (await fleet.node('n1')).state === 'unreachable', {
    deadlineMs: 20_000,
    what: 'n1 to be missed',
  });
  const waiting = fleet.ctlProcess('drain', 'n1', '--wait', '--yes');
  await waitFor(async () => (await fleet.node('n1')).scheduling.target === 'drained', {
    deadlineMs: 10_000,
    what: 'the drain to be asked for',
  });
  // Whatever the data path says: for as long as it may come back, it is not empty, and it is said what is waited for.
  await waitFor(
    async () => {
      const { state, scheduling } = await fleet.node('n1');
      if (state === 'lost') return true;
      await mustHold(async () => {
        expect(scheduling.state).toBe('draining');
        expect(scheduling.waitingFor[0]?.reason.message).toMatch(/./);
        const outcome = await streamed(fleet.urls.client, 'm1', 2);
        // Only the one that runs when the machine is given up may end with it.
        if (outcome !== 'whole') expect([outcome, (await fleet.node('n1')).state]).toEqual([outcome, 'lost']);
      });
      return undefined;
    },
    { deadlineMs: 60_000, what: 'n1 to be given up' },
  );
  await waitFor(async () => (await fleet.node('n1')).scheduling.state === 'drained', {
    deadlineMs: 30_000,
    what: 'drained',
  });
  expect((await fleet.node('n1')).scheduling.stateReason).toBe(
    'given up as lost: no stop there is confirmed',
  );
  expect((await waiting.ended()).code).toBe(1);
  expect(waiting.stderr).toContain('n1: given up as lost: no stop there is confirmed');
  await waitFor(
    async () => (await fleet.replicas()).some(({ nodes, published }) => published && nodes[0] === 'n2'),
    {
      deadlineMs: 30_000,
      what: 'the copy on n2',
    },
  );

  // Back again, what is left there is stopped and the word is no longer a presumption.
  expect(() => process.kill(pid, 0)).not.toThrow();
  fleet.link('n1').heal();
  await fleet.settled('n2');
  await waitFor(
    async () => {
      const { state, stateReason } = (await fleet.node('n1')).scheduling;
      // Looked at before: with a word or without, nothing is left alive when it is said to be confirmed.
      if (state === 'drained' && stateReason === undefined)
        await mustHold(() => expect(() => process.kill(pid, 0)).toThrow());
      return state === 'drained' && stateReason === undefined;
    },
    { deadlineMs: 30_000, what: 'the stop to be confirmed' },
  );
  expect(() => process.kill(pid, 0)).toThrow();
  expect(await streamed(fleet.urls.client, 'm1', 3)).toBe('whole');
});

it('a wait goes on across a restart of the server, to the right exit code', async () => {
  fleet = await Fleet.start({ config: CONFIG, nodes: { n1: {} } });
  await fleet.settled('n1');
  // The only machine: there is nothing that a plan could offer.
  const refused = await fleet.ctl('drain', 'n1', '--yes');
  expect(refused.code).toBe(7);
  expect(refused.stderr).toMatch(/nowhere .*until there is room/);
  expect((await fleet.node('n1')).scheduling.target).toBe('schedulable');
  await fleet.addNode('n2', {});
  const waiting = fleet.ctlProcess('drain', 'n1', '--wait', '--yes');
  await waitFor(() => waiting.stderr.includes('must be Ready and steady'), {
    deadlineMs: 20_000,
    what: 'the wait to tell',
  });
  // A server that is back between two looks of the wait would never be missed.
  await fleet.crashServer(async () => {
    await waitFor(() => waiting.stderr.includes('trying on'), {
      deadlineMs: 20_000,
      what: 'the wait to miss the server',
    });
  });
  expect((await waiting.ended(90_000)).code).toBe(0);
  expect(waiting.stderr).toMatch(/trying on, what was asked goes on\n(.*\n)*the server is back\n/);
  expect(waiting.stderr).toMatch(/n1: drained, waited/);
  await fleet.settled('n2');

  // The same of a drain that hits a bound meanwhile.
  const endless = streamed(fleet.urls.client, 'm1', 5_000);
  await fleet.schedule('n1', { target: 'schedulable' });
  await waitFor(async () => (await fleet.replicas())[0]?.inflight === 1, {
    deadlineMs: 20_000,
    what: 'the stream',
  });
  const forced = fleet.ctlProcess('drain', 'n2', '--wait', '--yes', '--stream-grace', '3s');
  await waitFor(() => forced.stderr.includes('in flight'), {
    deadlineMs: 60_000,
    what: 'the streams to be waited for',
  });
  expect((await forced.ended(90_000)).code).toBe(6);
  expect(await endless).toContain('"code":"shutting_down"');
});
