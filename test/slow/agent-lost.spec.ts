/** A machine that is cut off from the server while its engine serves on, and what becomes of both copies when it is back. */
import { afterEach, expect, it } from 'vitest';
import { Fleet, streamed } from '../support/fleet.js';
import { liveEngines } from '../support/live-engines.js';
import { mustHold, waitFor } from '../support/wait-for.js';

const config = (flags: string, lostAfter: string): string => `
control: { interval: 200ms, settleAfterStart: 5s, steadyAfter: 1s, unreachableAfter: 2s, lostAfter: ${lostAfter} }
models:
  - name: m1
    profiles:
      - name: sim
        engine: sim
        gpus: 1
        stopGrace: 5s
        args: ["--ttft-ms", "20", "--tpot-ms", "50"${flags}]
`;

let fleet: Fleet;
afterEach(() => fleet.dispose());

/** A fleet whose only replica stands on n1, with n2 to spare. */
async function onFirst(lostAfter: string, ...flags: readonly string[]): Promise<number> {
  fleet = await Fleet.start({
    config: config(flags.map((flag) => `, "${flag}"`).join(''), lostAfter),
    nodes: { n1: {} },
  });
  await fleet.settled('n1');
  await fleet.addNode('n2', {});
  return engines('n1')[0] ?? expect.fail('no engine on n1');
}

/** Pids of the engines that run on a machine, whatever anybody believes. */
const engines = (id: string): number[] => liveEngines(fleet.stateDir(id)).map(({ pid }) => pid);
const state = async (id: string): Promise<string> => (await fleet.node(id)).state;
const untilState = (id: string, wanted: RegExp): Promise<unknown> =>
  waitFor(async () => wanted.test(await state(id)), { deadlineMs: 60_000, what: `${id} ${wanted}` });

it('of a lost machine the old copy never serves again, ends what it has, and holds its device until then', async () => {
  const pid = await onFirst('5s');
  // Sent before the line breaks; the way from router to engine stays whole.
  const stream = streamed(fleet.urls.client, 'm1', 500);
  fleet.link('n1').cut();
  await untilState('n1', /lost/);
  const [replacement] = await waitFor(
    async () => {
      const ready = (await fleet.replicas()).filter(({ published }) => published);
      return ready.some(({ nodes }) => nodes.includes('n2')) && ready;
    },
    { deadlineMs: 60_000, what: 'a replacement on n2' },
  );
  expect(replacement?.nodes).toEqual(['n2']);
  // The agent stops nothing of its own accord.
  expect(engines('n1')).toEqual([pid]);

  fleet.link('n1').heal();
  await waitFor(async () => (await state('n1')) !== 'lost', { deadlineMs: 60_000, what: 'n1 back' });
  await waitFor(
    async () => {
      const published = (await fleet.replicas()).filter((one) => one.published);
      await mustHold(() => expect(published.flatMap(({ nodes }) => nodes)).not.toContain('n1'));
      const alive = engines('n1').length > 0;
      const { gpus } = await fleet.node('n1');
      // Looked at in this order: what is free now was so before the engine was seen alive only by mistake.
      if (alive && engines('n1').length > 0) await mustHold(() => expect(gpus.free).toBe(0));
      return !alive;
    },
    { deadlineMs: 90_000, what: 'the end of the old copy' },
  );
  expect(await stream).toBe('whole');
  await waitFor(async () => (await fleet.node('n1')).gpus.free === 1, {
    deadlineMs: 30_000,
    what: 'its device free',
  });
  expect(await fleet.settled('n2')).toHaveLength(1);
});

it('a machine that is back before it is lost keeps its copy, and nothing is started for it', async () => {
  const pid = await onFirst('120s');
  const [before] = await fleet.replicas();
  // The bytes of its answers prove the engine alive; of an idle one nobody would know.
  const stream = streamed(fleet.urls.client, 'm1', 300);
  fleet.link('n1').cut();
  await untilState('n1', /unreachable/);
  expect(await streamed(fleet.urls.client, 'm1', 5)).toBe('whole');
  fleet.link('n1').heal();
  await untilState('n1', /connected|flapping/);
  const after = await fleet.settled('n1');
  expect(after).toMatchObject([{ id: before?.id, generation: before?.generation, restarts: 0 }]);
  expect([engines('n1'), engines('n2')]).toEqual([[pid], []]);
  expect(await stream).toBe('whole');
});

it('a machine that is back while its replacement loads keeps the copy that serves, and one is left', async () => {
  const pid = await onFirst('5s', '--startup-ms', '15000');
  fleet.link('n1').cut();
  await waitFor(() => engines('n2').length === 1, { deadlineMs: 60_000, what: 'a replacement that loads' });
  fleet.link('n1').heal();
  await untilState('n1', /connected|flapping/);
  const outcomes = new Set<string>();
  await waitFor(
    async () => {
      outcomes.add(await streamed(fleet.urls.client, 'm1', 5));
      return engines('n1').length + engines('n2').length === 1;
    },
    { deadlineMs: 90_000, what: 'one engine' },
  );
  expect(outcomes).toEqual(new Set(['whole']));
  const [only] = await waitFor(
    async () => {
      const replicas = await fleet.replicas();
      return replicas.length === 1 && replicas[0]?.published === true && replicas;
    },
    { deadlineMs: 60_000, what: 'one replica' },
  );
  // Either is right, as long as it is one; the engine that served is not restarted.
  if (only?.nodes.includes('n1') === true) expect(engines('n1')).toEqual([pid]);
});

it('a stop that was taken before the line broke is carried out without it, and told when it is back', async () => {
  const pid = await onFirst('120s', '--ignore-sigterm');
  await fleet.schedule('n1', { target: 'drained' });
  await fleet.agent('n1').logged('shard is being stopped', 90_000);
  fleet.link('n1').cut();
  // It is deaf to TERM: there is time for the line to break before it ends.
  expect(engines('n1')).toEqual([pid]);
  await waitFor(() => engines('n1').length === 0, { deadlineMs: 60_000, what: 'its end' });
  // Nobody told: it may still be there.
  expect((await fleet.node('n1')).scheduling.state).toBe('draining');
  fleet.link('n1').heal();
  await fleet.drained('n1');
  await waitFor(async () => (await fleet.node('n1')).gpus.free === 1, {
    deadlineMs: 20_000,
    what: 'its device free',
  });
});
