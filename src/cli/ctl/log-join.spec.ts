import { describe, expect, it } from 'vitest';
import { LogJoin, RESUME_LINES } from './log-join.js';

const lines = (...numbers: number[]): string => numbers.map((number) => `line ${number}\n`).join('');

describe('a log that broke off', () => {
  it('goes on behind what was printed, however it comes in pieces', () => {
    const join = new LogJoin();
    expect(join.take(lines(1, 2, 3))).toBe(lines(1, 2, 3));
    join.brokeOff();
    expect(join.take('line 0\nli')).toBe('');
    expect(join.isSearching).toBe(true);
    expect(join.take('ne 1\nline 2\nline 3\nline 4\nline')).toBe(lines(4));
    expect(join.isSearching).toBe(false);
    expect(join.take(' 5\n')).toBe(lines(5));
  });

  it('prints nothing twice when nothing is new', () => {
    const join = new LogJoin();
    join.take(lines(1, 2));
    join.brokeOff();
    expect(join.take(lines(1, 2))).toBe('');
    expect(join.take(lines(3))).toBe(lines(3));
  });

  it('is not led astray by single lines that repeat', () => {
    const join = new LogJoin();
    join.take('a\nhealth\nb\nhealth\n');
    join.brokeOff();
    expect(join.take('a\nhealth\nb\nhealth\nc\nhealth\n')).toBe('c\nhealth\n');
  });

  it('prints all of another run, once it is clear that the place is not to be found', () => {
    const join = new LogJoin();
    join.take(lines(1, 2));
    join.brokeOff();
    expect(join.take('started\nready\n')).toBe('');
    expect(join.giveUp()).toBe('started\nready\n');
    expect(join.take('more\n')).toBe('more\n');
  });

  it('knows the place behind a last line that was unfinished', () => {
    const join = new LogJoin();
    join.take('a\nb\nloading 10%\n');
    join.brokeOff();
    join.take('a\nb\nloading 100%\ndone\n');
    expect(join.giveUp()).toBe('loading 100%\ndone\n');
  });

  it('holds no more than an agent sends again, and nothing when nothing was printed', () => {
    const join = new LogJoin();
    join.brokeOff();
    expect(join.take(lines(7))).toBe(lines(7));
    join.brokeOff();
    const many = 'x\n'.repeat(RESUME_LINES);
    expect(join.take(many)).toBe(many);
  });
});
