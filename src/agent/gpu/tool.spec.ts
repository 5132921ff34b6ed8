import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { systemProcessTable, type ProcessFacts, type ProcessTable } from '../process-table.js';
import { waitFor } from '../../../test/support/wait-for.js';
import { Tool } from './tool.js';

const soon = (): AbortSignal => AbortSignal.timeout(10_000);

describe('a tool of a vendor', () => {
  let directory: string;
  beforeEach(() => (directory = mkdtempSync(join(tmpdir(), 'llmgw-tool-'))));
  afterEach(() => rmSync(directory, { recursive: true, force: true }));

  function script(text: string): string {
    const path = join(directory, 'tool');
    writeFileSync(path, `#!/bin/sh\n${text}\n`);
    chmodSync(path, 0o755);
    return path;
  }

  it('is asked in the plain locale: numbers with commas would fall apart in a list', async () => {
    const tool = new Tool(script('echo "$LC_ALL"'), { ...process.env, LC_ALL: 'de_DE.UTF-8' });
    expect((await tool.run([], soon())).stdout).toBe('C\n');
  });

  it('gives its exit code and both of its outputs', async () => {
    expect(await new Tool(script('echo out; echo err >&2; exit 255')).run([], soon())).toEqual({
      code: 255,
      stdout: 'out\n',
      stderr: 'err\n',
    });
  });

  it('is named when it is not there', async () => {
    const tool = new Tool(join(directory, 'nvidia-smi'));
    await expect(tool.run(['-L'], soon())).rejects.toThrow(/nvidia-smi cannot be started/);
    await expect(tool.run(['-L'], soon())).rejects.toThrow(/cannot be started/);
  });

  it('is ended when it prints without end, and can be asked again at once', async () => {
    const tool = new Tool(script('[ "$1" = short ] && exit 0; while :; do echo 0123456789; done'));
    await expect(tool.run(['long'], soon())).rejects.toThrow(/printed more than/);
    expect((await tool.run(['short'], soon())).code).toBe(0);
  });

  it('is killed at its deadline, deaf as it may be', async () => {
    const tool = new Tool(script("trap '' TERM; while :; do sleep 1; done"));
    await expect(tool.run([], AbortSignal.timeout(500))).rejects.toThrow('killed at its deadline');
    const table = systemProcessTable();
    const ours = (): boolean =>
      table.list().some(({ pid, parentPid }) => parentPid === process.pid && table.name(pid) === 'tool');
    await waitFor(() => !ours(), { what: 'its end' });
  });

  // Else each probe would leave one more program hanging in the driver behind its wrapper.
  it('is killed with what it started when it is a wrapper', async () => {
    const note = join(directory, 'pid');
    const tool = new Tool(script(`sleep 600 & echo $! > ${note}; wait; exit 0`));
    const deadline = new AbortController();
    const run = tool.run([], deadline.signal);
    const pid = await waitFor(() => Number(readFileSync(note, 'utf8')), { what: 'what the wrapper starts' });
    deadline.abort();
    await expect(run).rejects.toThrow('killed at its deadline');
    await waitFor(() => systemProcessTable().read(pid)?.zombie !== false, { what: 'its end' });
  });

  it('is not asked again while anything of a killed one is left', async () => {
    const real = systemProcessTable();
    let left: readonly ProcessFacts[] = [];
    const table: ProcessTable = { ...systemProcessTable('none'), list: () => [...left] };
    const tool = new Tool(script('[ "$1" = short ] && exit 0; sleep 600'), process.env, table);
    const deadline = new AbortController();
    const run = tool.run([], deadline.signal);
    const child = await waitFor(
      // One that an earlier test had killed may still wait to be reaped.
      () =>
        real
          .list()
          .find(
            ({ pid, parentPid, zombie }) => parentPid === process.pid && !zombie && real.name(pid) === 'tool',
          ),
      { what: 'the wrapper' },
    );
    left = [{ ...child, pid: 77, zombie: false }];
    deadline.abort();
    await expect(run).rejects.toThrow('killed');
    const refusal = (): Promise<string> =>
      tool.run(['short'], soon()).then(
        () => '',
        (error: unknown) => String(error),
      );
    await waitFor(async () => (await refusal()).includes('(pid 77) hangs'), {
      what: 'its child to be named',
    });
    left = [];
    expect((await tool.run(['short'], soon())).code).toBe(0);
  });
});
