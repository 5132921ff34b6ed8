/** Where a drain finds room: lower priorities, a smaller profile, another device of the machine, places for a whole gang. */
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { ModelDetailView } from '../../src/admin-api/views/models.js';
import type { ReplicaDetailView } from '../../src/admin-api/views/replicas.js';
import { Fleet, streamed, Traffic } from '../support/fleet.js';
import { adminGet } from '../support/llmgw-process.js';
import { isAlive } from '../support/is-alive.js';
import { mustHold, waitFor } from '../support/wait-for.js';

const CONTROL = 'control: { interval: 200ms, settleAfterStart: 5s, steadyAfter: 1s, unreachableAfter: 3s }';
const ARGS = 'args: ["--ttft-ms", "20", "--tpot-ms", "50", "--startup-ms", "500", "--slots", "64"]';

let fleet: Fleet;
afterEach(() => fleet.dispose());

const placesOf = async (model: string): Promise<readonly string[]> =>
  (await fleet.replicas())
    .filter((one) => one.model === model && one.published)
    .flatMap(({ nodes }) => nodes);
const stands = (model: string, ...nodes: readonly string[]): Promise<unknown> =>
  waitFor(async () => (await placesOf(model)).join() === nodes.join(), {
    deadlineMs: 60_000,
    what: `${model} Ready on ${nodes.join(', ') || 'no node'}`,
  });

describe('a drain that finds nothing spare', () => {
  it('takes the room of a lower priority that yields, and gives it back', async () => {
    const model = (name: string, more: string): string =>
      `  - { name: ${name}, ${more}, profiles: [{ name: sim, engine: sim, gpus: 1, ${ARGS} }] }\n`;
    const config = `${CONTROL}\nmodels:\n${model('high', 'priority: 200')}${model('low', 'priority: 50, placement: { mayYield: true }')}`;
    fleet = await Fleet.start({ config, nodes: { n1: {} } });
    await stands('high', 'n1');
    await fleet.addNode('n2', {});
    await stands('low', 'n2');

    const traffic = new Traffic(fleet, 'high', { long: 8, longTokens: 260, perSecond: 5 });
    const plan = await fleet.ctl('drain', 'n1', '--plan');
    expect(plan.stdout).toMatch(/high +\d+ +n2 \(sim\).*none +profile sim on n2 when low-\w+ of low has yi/);
    const lent = streamed(fleet.urls.client, 'low', 100);
    await waitFor(async () => (await fleet.replicas()).every(({ inflight }) => inflight > 0), {
      deadlineMs: 20_000,
      what: 'requests on both',
    });
    const drained = await fleet.ctl('drain', 'n1', '--wait', '--yes');
    expect(drained.stderr).toMatch(/waits until low-\w+ of low made room|it waits for a place/);
    expect([drained.code, drained.stderr]).toEqual([0, expect.stringMatching(/n1: drained, waited/)]);
    expect(await traffic.end()).toEqual({ long: new Set(['whole']), short: new Set(['whole']) });
    expect(traffic.fewestReady).toBe(1);
    // What yielded was drained as everything is: its stream ended by itself.
    expect(await lent).toBe('whole');
    await stands('high', 'n2');
    expect((await fleet.ctl('model', 'low')).stdout).toContain('yielded to high');

    await fleet.ctl('uncordon', 'n1');
    await stands('low', 'n1');
    await stands('high', 'n2');
  });

  it('takes the next profile of the model where the first does not fit', async () => {
    const profile = (name: string, gpus: number): string =>
      `{ name: ${name}, engine: sim, gpus: ${gpus}, ${ARGS} }`;
    const config = `${CONTROL}\nmodels:\n  - { name: m1, profiles: [${profile('large', 2)}, ${profile('small', 1)}] }\n`;
    fleet = await Fleet.start({ config, nodes: { n1: { gpus: 2 } } });
    await stands('m1', 'n1');
    await fleet.addNode('n2', { gpus: 1 });
    const traffic = new Traffic(fleet, 'm1', { long: 4, longTokens: 100, perSecond: 5 });
    const plan = await fleet.ctl('drain', 'n1', '--plan');
    expect(plan.stdout).toContain('n2 (small)');
    expect((await fleet.ctl('drain', 'n1', '--wait', '--yes')).code).toBe(0);
    expect(await traffic.end()).toEqual({ long: new Set(['whole']), short: new Set(['whole']) });
    expect(traffic.fewestReady).toBe(1);
    expect((await fleet.replicas()).map(({ profile: now, nodes }) => [now, nodes])).toEqual([
      ['small', ['n2']],
    ]);
  });
});

it('one device is drained to another of its machine; its neighbour stays, and the machine too', async () => {
  const model = (name: string): string =>
    `  - { name: ${name}, profiles: [{ name: sim, engine: sim, gpus: 1, ${ARGS} }] }\n`;
  fleet = await Fleet.start({
    config: `${CONTROL}\nmodels:\n${model('m1')}${model('m2')}`,
    nodes: { n1: { gpus: 3 } },
  });
  await stands('m1', 'n1');
  await stands('m2', 'n1');
  const before = await fleet.replicas();
  const held = async (): Promise<Readonly<Record<string, string>>> => {
    const { gpuDevices } = await fleet.node('n1');
    return Object.fromEntries(
      gpuDevices.flatMap(({ uuid, heldBy }) => heldBy.map(({ model: by }) => [by, uuid])),
    );
  };
  const { m1 = '', m2 = '' } = await held();
  const traffic = new Traffic(fleet, 'm1', { long: 4, longTokens: 100, perSecond: 5 });
  expect((await fleet.ctl('drain', 'n1', '--gpu', m1, '--wait', '--yes')).code).toBe(0);
  expect(await traffic.end()).toEqual({ long: new Set(['whole']), short: new Set(['whole']) });
  expect(traffic.fewestReady).toBe(1);
  const after = await held();
  expect(after['m1']).not.toBe(m1);
  expect(after['m2']).toBe(m2);
  const neighbour = before.find(({ model: of }) => of === 'm2');
  expect((await fleet.replicas()).find(({ model: of }) => of === 'm2')).toMatchObject({
    id: neighbour?.id,
    generation: neighbour?.generation,
  });
  expect((await fleet.node('n1')).scheduling).toMatchObject({ state: 'drained', gpuUuid: m1 });

  // Nothing new gets the drained device, the one beside it is free for all.
  await fleet.ctl('scale', 'm1', '2');
  await waitFor(
    async () => {
      const all = (await fleet.node('n1')).gpuDevices.find(({ uuid }) => uuid === m1);
      await mustHold(() => expect(all?.heldBy).toEqual([]));
      return (await fleet.replicas()).some(({ model: of, reason }) => of === 'm1' && reason !== undefined);
    },
    { deadlineMs: 20_000, what: 'the third replica to say why it has no place' },
  );
});

describe('a gang', () => {
  const dir = mkdtempSync(join(tmpdir(), 'llmgw-gang-'));
  const engine = join(dir, 'engine.sh');
  const SIM = resolve(import.meta.dirname, '..', '..', 'dist', 'engines', 'sim', 'main.js');
  /** Rank 0 serves; the others are there, as the ranks of real engines are. */
  const SCRIPT = `#!/bin/sh
if [ "$LLMGW_RANK" = 0 ]; then
  exec '${process.execPath}' '${SIM}' --port "$LLMGW_PORT" --model "$LLMGW_MODEL" --ttft-ms 20 --tpot-ms 50 --startup-ms 500 --slots 64
fi
exec sleep 3600
`;
  const file = `engines: { command: { binary: ${engine} } }\n`;

  beforeAll(() => {
    writeFileSync(engine, SCRIPT);
    chmodSync(engine, 0o755);
  });
  afterAll(() => rmSync(dir, { recursive: true, force: true }));

  it('moves whole when the node of one rank is drained, and its ranks end together', async () => {
    const config = `${CONTROL}\nmodels:\n  - { name: m1, profiles: [{ name: two, engine: command, shards: 2, gpus: 1 }] }\n`;
    fleet = await Fleet.start({ config, nodes: { n1: { gpus: 2, file }, n2: { file } } });
    const [original] = await waitFor(
      async () => {
        const now = await fleet.replicas();
        return now[0]?.published === true ? now : undefined;
      },
      { deadlineMs: 60_000, what: 'the gang' },
    );
    expect(original?.nodes.toSorted()).toEqual(['n1', 'n2']);
    await fleet.addNode('n3', { file });
    const { shards } = await adminGet<ReplicaDetailView>(fleet.urls, `replicas/${original?.id}`);
    const pids = shards.map(({ pid = 0 }) => pid);
    expect(pids.every(isAlive)).toBe(true);

    const plan = await fleet.schedule('n2', { target: 'drained' }, '?plan=true');
    const [move] = plan.moves;
    expect(move?.target?.shards.map(({ nodeId }) => nodeId).toSorted()).toEqual(['n1', 'n3']);
    expect(plan.gapExpected).toBe(false);
    const traffic = new Traffic(fleet, 'm1', { long: 4, longTokens: 200, perSecond: 5 });
    await waitFor(async () => ((await fleet.replicas())[0]?.inflight ?? 0) >= 4, {
      deadlineMs: 20_000,
      what: 'the streams',
    });
    const waiting = fleet.ctlProcess('drain', 'n2', '--wait', '--yes');
    const noStreamIsLeft = async () => {
      const old = (await fleet.replicas()).find(({ id }) => id === original?.id);
      expect(old?.inflight ?? 0, 'streams whose rank went early').toBe(0);
    };
    // Every rank lives for as long as a stream hangs on the first.
    await waitFor(
      async () => {
        const old = (await fleet.replicas()).find(({ id }) => id === original?.id);
        // Asked again when one is gone: the last stream may have ended since the first look.
        if (old !== undefined && old.inflight > 0 && !pids.every(isAlive)) await mustHold(noStreamIsLeft);
        return old === undefined;
      },
      { deadlineMs: 60_000, what: 'the old gang to be gone' },
    );
    expect(pids.some(isAlive)).toBe(false);
    expect((await waiting.ended()).code).toBe(0);
    expect(await traffic.end()).toEqual({ long: new Set(['whole']), short: new Set(['whole']) });
    expect(traffic.fewestReady).toBe(1);
    const [now, ...others] = await fleet.replicas();
    expect(others).toEqual([]);
    expect(now?.nodes.toSorted()).toEqual(['n1', 'n3']);
    const model = await adminGet<ModelDetailView>(fleet.urls, 'models/m1');
    expect(model).toMatchObject({ desired: 1, ready: 1 });
  });
});
