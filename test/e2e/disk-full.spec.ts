import { spawnSync } from 'node:child_process';
import { closeSync, mkdirSync, openSync, rmSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { ErrorView, ListView } from '../../src/admin-api/views/answers.js';
import type { ReplicaSummaryView } from '../../src/admin-api/views/replicas.js';
import type { StatusView } from '../../src/admin-api/views/status.js';
import {
  adminGet,
  LlmgwProcess,
  Scratch,
  startServerProcess,
  type ServerUrls,
} from '../support/llmgw-process.js';
import { waitFor } from '../support/wait-for.js';

const CONFIG = `
control: { interval: 200ms, settleAfterStart: 1s }
models:
  - name: m1
    replicas: 1
    profiles: [{ name: sim, engine: sim, gpus: 1, args: ["--ttft-ms", "20", "--tpot-ms", "5"] }]
`;

const AGENT = `
gpus:
  driver: static
  static:
    - { uuid: GPU-0, type: sim-80g, memory: 80GiB }
    - { uuid: GPU-1, type: sim-80g, memory: 80GiB }
`;

const scratch = new Scratch();
const state = scratch.path('server-state');
mkdirSync(state);
// Mounting needs root; where nobody may, the store's own spec has the same error from SQLite.
const mounted = spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=4m,mode=700', 'tmpfs', state]).status === 0;

/** Fills the file system to its last byte. */
function fill(path: string): void {
  const handle = openSync(path, 'w');
  try {
    for (const size of [65_536, 4_096, 512, 1]) {
      const block = Buffer.alloc(size);
      try {
        for (;;) writeSync(handle, block);
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error;
      }
    }
  } finally {
    closeSync(handle);
  }
}

describe.skipIf(!mounted)('a state directory without any space left', () => {
  const processes: LlmgwProcess[] = [];
  const filler = join(state, 'filler');
  let urls: ServerUrls;

  const ready = async (): Promise<number> =>
    (await adminGet<ListView<ReplicaSummaryView>>(urls, 'replicas')).items.filter((one) => one.published)
      .length;
  const scale = (replicas: number): Promise<Response> =>
    fetch(`${urls.admin}/admin/v1/models/m1/scale`, {
      method: 'PUT',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ replicas }),
    });
  const chat = async (): Promise<number> => {
    const response = await fetch(`${urls.client}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'm1', max_tokens: 3, messages: [{ role: 'user', content: 'hi' }] }),
    });
    await response.text();
    return response.status;
  };

  beforeAll(async () => {
    const server = await startServerProcess(scratch, ['--config', scratch.file('server.yaml', CONFIG)]);
    processes.push(server.process);
    urls = server.urls;
    processes.push(
      new LlmgwProcess(
        [
          ...['agent', '--server', urls.agent, '--node-id', 'n1'],
          ...['--config', scratch.file('agent.yaml', AGENT), '--state-dir', scratch.path('agent')],
        ],
        { LLMGW_ON_EXIT: 'stop' },
        scratch.dir,
      ),
    );
    await waitFor(async () => (await ready()) === 1, { deadlineMs: 60_000, what: 'a Ready replica' });
  });

  afterAll(async () => {
    for (const process of processes.toReversed()) await process.dispose();
    spawnSync('umount', [state]);
    scratch.remove();
  });

  it('refuses changes with the reason, serves on, and takes changes again without a restart', async () => {
    fill(filler);
    const refused = await scale(2);
    expect(refused.status).toBe(503);
    const { error } = (await refused.json()) as ErrorView;
    expect(error).toMatchObject({ code: 'store_unavailable', hint: 'nothing was changed; routing goes on' });
    expect(error.message).toContain(`no space is left for the state in ${state}`);
    const status = await adminGet<StatusView>(urls, 'status');
    expect(status.store).toMatchObject({ ok: false });
    expect(status.replicas.desired).toBe(1);
    expect(await chat()).toBe(200);
    const backup = await fetch(`${urls.admin}/admin/v1/backup`);
    expect(backup.status).toBe(503);
    await backup.text();
    expect(await chat()).toBe(200);
    expect(await ready()).toBe(1);

    rmSync(filler);
    expect((await scale(2)).status).toBe(200);
    await waitFor(async () => (await ready()) === 2, { deadlineMs: 60_000, what: 'the second replica' });
    expect((await adminGet<StatusView>(urls, 'status')).store).toMatchObject({ ok: true });
    expect(processes[0]?.exited).toBeUndefined();
  });
});

if (!mounted) scratch.remove();
