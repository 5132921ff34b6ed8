/** Engines of several nodes, and of weights that only one of them has: real agents, one machine pretending to be two. */
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { NodeDetailView } from '../../src/admin-api/views/nodes.js';
import type { ReplicaDetailView } from '../../src/admin-api/views/replicas.js';
import { Fleet, streamed } from '../support/fleet.js';
import { liveEngines } from '../support/live-engines.js';
import { adminGet } from '../support/llmgw-process.js';
import { waitFor } from '../support/wait-for.js';

const CONTROL = 'control: { interval: 200ms, baseBackoff: 1s, settleAfterStart: 5s }';
const SIM = resolve(import.meta.dirname, '..', '..', 'dist', 'engines', 'sim', 'main.js');
/** Rank 0 serves, whatever becomes of the others, as heads of real engines do; rank 1 lives until its file is there. */
const SCRIPT = `#!/bin/sh
if [ "$LLMGW_RANK" = 0 ]; then
  exec '${process.execPath}' '${SIM}' --port "$LLMGW_PORT" --model "$LLMGW_MODEL" --ttft-ms 20 --tpot-ms 50
fi
while [ ! -e "$0.end-$$" ]; do sleep 0.1; done
`;

describe('agents of two machines', () => {
  const dir = mkdtempSync(join(tmpdir(), 'llmgw-gang-'));
  const engine = join(dir, 'engine.sh');
  let fleet: Fleet;

  beforeAll(() => {
    writeFileSync(engine, SCRIPT);
    chmodSync(engine, 0o755);
  });
  afterEach(() => fleet.dispose());
  afterAll(() => rmSync(dir, { recursive: true, force: true }));

  const engines = (id: string): number[] => liveEngines(fleet.stateDir(id)).map(({ pid }) => pid);
  async function gang(afterGeneration: number): Promise<ReplicaDetailView> {
    const { id } = await waitFor(
      async () => (await fleet.replicas()).find((one) => one.published && one.generation > afterGeneration),
      { deadlineMs: 60_000, what: `the gang after generation ${afterGeneration}` },
    );
    return adminGet<ReplicaDetailView>(fleet.urls, `replicas/${id}`);
  }

  // A head that lives on answers its health checks and hangs with every request.
  it.each<[string, (pid: number) => void]>([
    ['is killed', (pid) => process.kill(pid, 'SIGKILL')],
    ['ends without an error', (pid) => writeFileSync(`${engine}.end-${pid}`, '')],
  ])('end the head when another rank %s, and both start anew', async (_what, end) => {
    fleet = await Fleet.start({
      config: `${CONTROL}\nmodels:\n  - { name: m1, profiles: [{ name: two, engine: command, shards: 2, gpus: 1, stopGrace: 1s }] }\n`,
      nodes: Object.fromEntries(
        ['n1', 'n2'].map((id) => [id, { file: `engines: { command: { binary: ${engine} } }\n` }]),
      ),
    });
    const before = await gang(0);
    const [head, worker] = before.shards.map(({ nodeId, pid = 0 }) => ({ nodeId, pid }));
    if (head === undefined || worker === undefined) throw new Error('no gang of two');
    const stream = streamed(fleet.urls.client, 'm1', 2_000);
    await waitFor(async () => ((await fleet.replicas())[0]?.inflight ?? 0) > 0, {
      deadlineMs: 20_000,
      what: 'a stream',
    });

    end(worker.pid);
    await waitFor(() => !engines(head.nodeId).includes(head.pid), {
      deadlineMs: 15_000,
      what: 'the end of the head',
    });
    expect(await stream).toMatch(/data: \{"error":/);
    const after = await gang(before.generation);
    expect(after.shards.map(({ pid }) => pid)).not.toContain(head.pid);
    const rendezvous = ({ shards }: ReplicaDetailView): (number | undefined)[] =>
      shards.map(({ rendezvousPort }) => rendezvousPort);
    expect(rendezvous(after)[0]).not.toBe(rendezvous(before)[0]);
    expect(await streamed(fleet.urls.client, 'm1', 3)).toBe('whole');
  });

  it('tell what weights are whole there, and work goes where they are', async () => {
    const roots = ['n1', 'n2'].map((id) => join(dir, id));
    const [, second = ''] = roots;
    for (const root of roots) mkdirSync(root);
    writeFileSync(join(second, 'whole.gguf'), 'GGUF');
    // Of a model in two parts one is there; and one was begun.
    writeFileSync(join(second, 'part-00001-of-00002.gguf'), 'GGUF');
    writeFileSync(join(second, 'empty.gguf'), '');
    fleet = await Fleet.start({
      config: `${CONTROL}\nmodels:\n  - { name: m1, source: whole.gguf, replicas: 0, profiles: [{ name: p, engine: command, gpus: 1 }] }\n`,
      nodes: Object.fromEntries(
        ['n1', 'n2'].map((id) => [
          id,
          { file: `modelRoots: [${join(dir, id)}]\nengines: { command: { binary: ${engine} } }\n` },
        ]),
      ),
    });
    await waitFor(
      async () => (await adminGet<NodeDetailView>(fleet.urls, 'nodes/n2')).weightsPresent.length > 0,
      { deadlineMs: 30_000, what: 'the weights of n2' },
    );
    expect((await fleet.ctl('scale', 'm1', '1')).code).toBe(0);
    // At the first try, and not because n1 had to say that it lacks them.
    expect(await gang(0)).toMatchObject({ nodes: ['n2'], generation: 1 });
    const { weightsPresent } = await adminGet<NodeDetailView>(fleet.urls, 'nodes/n2');
    expect(weightsPresent.filter((name) => !name.startsWith('/'))).toEqual(['whole.gguf']);
    expect((await fleet.ctl('node', 'n2')).stdout).toMatch(/^Weights here: +whole\.gguf/m);
    expect((await fleet.ctl('node', 'n1')).stdout).not.toContain('whole.gguf');
  });
});
