import { describe, expect, it } from 'vitest';
import { LOG_LINE_MAX_CHARS } from './limits.js';
import { cleanLine, LineSplitter, tailBytes } from './log-text.js';
import { redactor } from './redact.js';

const bytes = (text: string): Uint8Array => Buffer.from(text, 'utf8');

describe('cleanLine', () => {
  it.each([
    ['\x1b[31mred\x1b[0m text', 'red text'],
    ['\x1b[2J\x1b[Hcleared', 'cleared'],
    ['\x1b]0;title\x07named', 'named'],
    ['\x1b]8;;http://x\x1b\\link', 'link'],
    ['bell\x07 and\x00 nul', 'bell and nul'],
    ['tab\tstays', 'tab\tstays'],
    ['c1 \x9b31m gone', 'c1 31m gone'],
    ['left\u202eright', 'leftright'],
    ['10%\r50%\r100%', '100%'],
    ['whole line\r', 'whole line'],
    ['\x1b', ''],
    ['\x1b]0;title without end ERROR: out of memory', '0;title without end ERROR: out of memory'],
  ])('%j becomes %j', (raw, clean) => {
    expect(cleanLine(raw)).toBe(clean);
  });

  it('cuts a giant line and says so', () => {
    const line = cleanLine('x'.repeat(6_000_000));
    expect(line).toHaveLength(LOG_LINE_MAX_CHARS);
    expect(line).toMatch(/\[cut\]$/);
  });

  it('never cuts a secret in two, nor a character', () => {
    const redact = redactor(['plain-words-of-mine']);
    for (let before = LOG_LINE_MAX_CHARS - 40; before <= LOG_LINE_MAX_CHARS; before++) {
      const line = cleanLine(`${'x'.repeat(before)}plain-words-of-mine${'y'.repeat(100)}`, redact);
      expect(line).not.toMatch(/xp/);
      expect(line.length).toBeLessThanOrEqual(LOG_LINE_MAX_CHARS);
    }
    for (const shift of ['', 'x'])
      expect(cleanLine(shift + '😀'.repeat(LOG_LINE_MAX_CHARS))).toMatch(/^x?(?:😀)+ …\[cut\]$/u);
  });
});

describe('LineSplitter', () => {
  it('puts lines and characters together that were split over chunks', () => {
    const splitter = new LineSplitter();
    const whole = bytes('grüße\nüber');
    expect(splitter.push(whole.subarray(0, 3))).toEqual([]);
    expect(splitter.push(whole.subarray(3, 9))).toEqual(['grüße']);
    expect(splitter.push(whole.subarray(9))).toEqual([]);
    expect(splitter.unfinished()).toBe('über');
  });

  it('takes bytes that are no UTF-8', () => {
    expect(new LineSplitter().push(Buffer.from([0x61, 0xff, 0xfe, 0x62, 0x0a]))).toEqual(['a\ufffd\ufffdb']);
  });

  it('keeps only the last state of ten thousand progress updates', () => {
    const splitter = new LineSplitter();
    for (let step = 0; step < 10_000; step++) expect(splitter.push(bytes(`${step}/10000\r`))).toEqual([]);
    expect(splitter.unfinished()).toBe('9999/10000');
    expect(splitter.push(bytes('ERROR: out of memory\n'))).toEqual(['ERROR: out of memory']);
  });

  it('holds no endless line in memory', () => {
    const splitter = new LineSplitter();
    for (let part = 0; part < 100; part++) splitter.push(bytes('x'.repeat(60_000)));
    expect(splitter.push(bytes('\nnext\n'))).toEqual([expect.stringMatching(/^x+ …\[cut\]$/), 'next']);
  });
});

describe('tailBytes', () => {
  it('keeps the end, whole lines, and marks the cut', () => {
    const lines = Array.from({ length: 100 }, (_, index) => `line ${index}`);
    const tail = tailBytes(lines, 100);
    expect(Buffer.byteLength(tail)).toBeLessThanOrEqual(100);
    expect(tail).toMatch(/^…\[earlier output cut\]\n/);
    expect(tail).toMatch(/line 99$/);
  });

  it('says nothing of a cut when there is none', () => {
    expect(tailBytes(['a', 'b'], 100)).toBe('a\nb');
  });
});
