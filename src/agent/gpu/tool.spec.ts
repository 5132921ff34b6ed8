import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { systemProcessTable } from '../process-table.js';
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
});
