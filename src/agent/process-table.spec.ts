import { describe, expect, it } from 'vitest';
import { parseEnvironment, parseStat, signalProcess, systemProcessTable } from './process-table.js';

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
