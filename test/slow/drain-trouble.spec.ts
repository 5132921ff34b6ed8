/** Drains in which something else goes wrong: engines that do not end or do not start, two drains at once, two operators. */
import { chmodSync } from 'node:fs';
import { resolve } from 'node:path';
import { afterAll, afterEach, expect, it } from 'vitest';
import type { ReplicaDetailView } from '../../src/admin-api/views/replicas.js';
import { Fleet, streamed, Traffic } from '../support/fleet.js';
import { adminGet, Scratch } from '../support/llmgw-process.js';
import { isAlive } from '../support/is-alive.js';
import { mustHold, waitFor } from '../support/wait-for.js';

const SIM = resolve(import.meta.dirname, '..', '..', 'dist', 'engines', 'sim', 'main.js');
const config = (model: string, profile: string): string => `
control: { interval: 200ms, settleAfterStart: 5s, steadyAfter: 1s, unreachableAfter: 3s, baseBackoff: 1s }
models:
  - name: m1
    ${model}
    profiles:
      - { name: only, gpus: 1, ${profile} }
`;
const SIM_PROFILE = 'engine: sim, args: ["--ttft-ms", "20", "--tpot-ms", "50", "--startup-ms", "500"';

const scratch = new Scratch();
let fleet: Fleet;
afterEach(() => fleet.dispose());
afterAll(() => scratch.remove());

it('an engine that ignores TERM is killed after its grace, and the machine is drained only then', async () => {
  fleet = await Fleet.start({
    config: config('replicas: 1', `${SIM_PROFILE}, "--ignore-sigterm"], stopGrace: 4s`),
    nodes: { n1: {} },
  });
  const [original] = await fleet.settled('n1');
  const { shards } = await adminGet<ReplicaDetailView>(fleet.urls, `replicas/${original?.id}`);
  const pid = shards[0]?.pid ?? 0;
  await fleet.addNode('n2', {});
  const waiting = fleet.ctlProcess('drain', 'n1', '--wait', '--yes');
  await waitFor(
    async () => {
      // Looked at in this order: what was alive when it was said to be drained was alive too early.
      const { state } = (await fleet.node('n1')).scheduling;
      if (state === 'drained') await mustHold(() => expect(isAlive(pid)).toBe(false));
      return state === 'drained';
    },
    { deadlineMs: 60_000, what: 'n1 drained' },
  );
  expect((await waiting.ended()).code).toBe(0);
  await fleet.settled('n2');

  // No machine is left, and that was accepted: at the grace the last copy goes too, and the model comes back with the room.
  const endless = streamed(fleet.urls.client, 'm1', 5_000);
  await waitFor(async () => (await fleet.replicas())[0]?.inflight === 1, {
    deadlineMs: 20_000,
    what: 'the stream',
  });
  const last = await fleet.ctl('drain', 'n2', '--allow-gap', '--stream-grace', '2s', '--wait', '--yes');
  expect(last.stderr).toMatch(/m1 .*until there is room/);
  expect(last.stderr).toMatch(/n2: drained by force.*1 bound hit/);
  expect(last.code).toBe(6);
  expect(await endless).toContain('"code":"shutting_down"');
  expect((await fleet.ctl('model', 'm1')).stdout).toMatch(/cordoned|drain|fits nowhere/);
  await fleet.ctl('uncordon', 'n1');
  await fleet.settled('n1');
});

it('a new copy that crashes again and again takes nothing away; a deadline given by hand does, and says so', async () => {
  const engine = (name: string, text: string): string => {
    const path = scratch.file(name, `#!/bin/sh\n${text}\n`);
    chmodSync(path, 0o755);
    return `engines: { command: { binary: ${path} } }\n`;
  };
  const good = `exec '${process.execPath}' '${SIM}' --port "$LLMGW_PORT" --model "$LLMGW_MODEL" --ttft-ms 20 --tpot-ms 50`;
  fleet = await Fleet.start({
    config: config('replicas: 1', 'engine: command'),
    nodes: { n1: { file: engine('good.sh', good) } },
  });
  await fleet.settled('n1');
  await fleet.addNode('n2', { file: engine('bad.sh', 'echo no device >&2; exit 3') });
  const traffic = new Traffic(fleet, 'm1', { long: 0, longTokens: 0, perSecond: 5 });
  const waiting = fleet.ctlProcess('drain', 'n1', '--wait', '--yes', '--deadline', '20s');
  await waitFor(() => waiting.stderr.includes('it failed'), {
    deadlineMs: 18_000,
    what: 'the failure to be told',
  });
  // It serves, and whoever looks is told what the drain waits for.
  expect(await streamed(fleet.urls.client, 'm1', 2)).toBe('whole');
  expect((await fleet.node('n1')).scheduling.waitingFor[0]?.reason.message).toMatch(/\w/);
  expect(traffic.fewestReady).toBe(1);
  expect((await waiting.ended(60_000)).code).toBe(6);
  expect(waiting.stderr).toContain('the deadline of the drain is over');
  expect((await fleet.node('n1')).scheduling.state).toBe('drained');
  expect((await traffic.end()).short).toContain('whole');
});

it('two drains at once share what is spare, and never go below what was wanted', async () => {
  fleet = await Fleet.start({
    config: config('replicas: 2\n    placement: { strategy: spread, antiAffinity: true }', `${SIM_PROFILE}]`),
    nodes: { n1: {}, n2: {} },
  });
  await fleet.settled('n1', 'n2');
  await fleet.addNode('n3', {});
  const traffic = new Traffic(fleet, 'm1', { long: 4, longTokens: 100, perSecond: 5 });
  await Promise.all(['n1', 'n2'].map((id) => fleet.schedule(id, { target: 'drained', reason: 'both' })));
  const states = async () =>
    (await Promise.all(['n1', 'n2'].map((id) => fleet.node(id)))).map(({ scheduling }) => scheduling);
  const left = await waitFor(
    async () => {
      const now = await states();
      const waits = now.find(({ state }) => state === 'draining')?.waitingFor[0]?.reason.code;
      return now.some(({ state }) => state === 'drained') && waits === 'no_target' ? now : undefined;
    },
    { deadlineMs: 60_000, what: 'one to be drained and the other to say that nothing is left' },
  );
  expect(left.map(({ state }) => state).toSorted()).toEqual(['drained', 'draining']);
  expect(await traffic.end()).toEqual({ long: new Set(['whole']), short: new Set(['whole']) });
  expect(traffic.fewestReady).toBe(2);
  expect((await fleet.replicas()).filter(({ published }) => published)).toHaveLength(2);
});

it('a drain that somebody else replaces ends the wait for it with 7; who wanted what is kept', async () => {
  fleet = await Fleet.start({
    config: config('replicas: 1', `${SIM_PROFILE.replace('"500"', '"15000"')}]`),
    nodes: { n1: {} },
  });
  await fleet.settled('n1');
  await fleet.addNode('n2', {});
  const waiting = fleet.ctlProcess('drain', 'n1', '--wait', '--yes', '--reason', 'fan');
  await waitFor(() => waiting.stderr.includes('must be Ready'), {
    deadlineMs: 30_000,
    what: 'the wait to tell',
  });
  const again = await fleet.ctl('drain', 'n1', '--yes', '--reason', 'something else');
  expect([again.code, again.stdout]).toEqual([0, expect.stringMatching(/as before\)\n.*by local: fan/)]);
  expect(again.stderr).toMatch(/under way: m1-\w+ is (starting|loading) on n2/);
  await fleet.crashServer();
  expect((await fleet.node('n1')).scheduling).toMatchObject({
    target: 'drained',
    actor: 'local',
    reason: 'fan',
  });
  expect((await fleet.ctl('cordon', 'n1', '--reason', 'not yet')).code).toBe(0);
  expect((await waiting.ended(60_000)).code).toBe(7);
  expect(waiting.stderr).toContain('the drain of n1 was replaced: it is now cordoned');
  const [kept] = await fleet.settled('n1');
  expect(kept?.generation).toBe(1);
  expect((await fleet.node('n1')).scheduling).toMatchObject({ state: 'cordoned', reason: 'not yet' });
});
