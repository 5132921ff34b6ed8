import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { waitFor } from '../../test/support/wait-for.js';
import { parseEnvironment, parseStat, signalProcess, systemProcessTable } from './process-table.js';

const hasPython = spawnSync('python3', ['--version']).status === 0;
const TAIL = '0 -1 4194304 100 0 0 0 7 5 0 0 20 0 1 0 987654 1000 200';

describe('parseStat', () => {
  it('reads the fields behind the name', () => {
    expect(parseStat(`42 (node) S 1 42 42 ${TAIL}`)).toEqual({
      pid: 42,
      parentPid: 1,
      groupId: 42,
      sessionId: 42,
      zombie: false,
      startTicks: 987654,
      cpuTicks: 12,
    });
  });

  it('is not misled by brackets and blanks in the name', () => {
    expect(parseStat(`42 (a) S 9 9 (b) Z 1 7 7 ${TAIL}`)).toMatchObject({ groupId: 7, zombie: true });
  });

  // What the kernel shows of a process that was killed while one of its threads is stuck in a driver: `[python] <defunct>`.
  it('does not take a process for ended while a thread of it lives', () => {
    const threads = (count: number) => TAIL.replace('20 0 1 0', `20 0 ${count} 0`);
    expect(parseStat(`42 (x) Z 1 42 42 ${threads(2)}`)).toMatchObject({ zombie: false });
    expect(parseStat(`42 (x) Z 1 42 42 ${threads(1)}`)).toMatchObject({ zombie: true });
    expect(parseStat(`42 (x) Z 1 42 42 ${threads(0)}`)).toMatchObject({ zombie: true });
  });

  it.each(['', 'nonsense', '42 (node', '42 (node) S 1'])('gives nothing for %j', (text) => {
    expect(parseStat(text)).toBeUndefined();
  });
});

describe('parseEnvironment', () => {
  it('keeps `=` and newlines in values and skips what is no variable', () => {
    expect([...parseEnvironment('A=1=2\0B=x\ny\0nothing\0=odd\0')]).toEqual([
      ['A', '1=2'],
      ['B', 'x\ny'],
    ]);
  });
});

describe('the process table of this system', () => {
  const table = systemProcessTable();

  it('knows this process, its environment and its start', () => {
    const me = table.read(process.pid);
    expect(me).toMatchObject({ pid: process.pid, parentPid: process.ppid, zombie: false });
    expect(table.environment(process.pid)?.get('PATH')).toBeDefined();
    expect(table.list().some((facts) => facts.pid === process.pid)).toBe(true);
    expect(table.bootId()).toMatch(/^[0-9a-f-]{36}$/);
  });

  it('knows the children of a process', async () => {
    const child = spawn('sleep', ['600'], { stdio: 'ignore' });
    try {
      expect(table.childrenOf(process.pid)).toContain(child.pid);
      expect(table.childrenOf(child.pid ?? 0)).toEqual([]);
    } finally {
      child.kill('SIGKILL');
      await once(child, 'exit');
    }
    expect(table.childrenOf(process.pid)).not.toContain(child.pid);
  });

  it.skipIf(!hasPython)('knows a process whose first thread has ended by the others', async () => {
    const program = `
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
ctypes.CDLL(None).pthread_exit(None)`;
    const directory = mkdtempSync(join(tmpdir(), 'llmgw-leaderless-'));
    const file = join(directory, 'out.log');
    const out = openSync(file, 'a');
    const child = spawn('python3', ['-c', program], {
      stdio: ['ignore', out, out],
      env: { ...process.env, MARK: 'x' },
    });
    closeSync(out);
    const pid = child.pid ?? 0;
    try {
      await waitFor(() => readFileSync(`/proc/${pid}/stat`, 'utf8').includes(') Z '), {
        what: 'the end of its first thread',
      });
      expect(table.read(pid)).toMatchObject({ pid, zombie: false });
      expect(table.environment(pid)?.get('MARK')).toBe('x');
      expect(table.output(pid)).toBe(file);
    } finally {
      child.kill('SIGKILL');
      await once(child, 'exit');
      rmSync(directory, { recursive: true });
    }
  });

  it('gives nothing for a pid nobody has', () => {
    expect(table.read(2 ** 22 + 1)).toBeUndefined();
    expect(table.environment(2 ** 22 + 1)).toBeUndefined();
  });

  it('says clearly where it cannot identify processes', () => {
    expect(systemProcessTable('darwin')).toMatchObject({ canIdentify: false });
  });
});

describe('signalProcess', () => {
  it.each([0, 1, -1, Number.NaN])('never signals pid %s', (pid) => {
    expect(() => signalProcess(pid, 0)).toThrow('refusing');
  });

  it('says when nobody is there', () => {
    expect(signalProcess(2 ** 22 + 1, 0)).toBe(false);
  });
});
