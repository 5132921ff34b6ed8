import {
  appendFileSync,
  closeSync,
  existsSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  writeSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { waitFor } from '../../test/support/wait-for.js';
import { systemClock } from '../shared/clock.js';
import { LOG_RING_LINES } from './limits.js';
import { redactor } from './redact.js';
import { readLogFile, RunLog } from './run-log.js';

describe('the log of a run', () => {
  let directory: string;
  let logs: RunLog[];

  beforeEach(() => {
    directory = mkdtempSync(join(tmpdir(), 'llmgw-log-'));
    logs = [];
  });
  afterEach(async () => {
    for (const log of logs) await log.close();
    rmSync(directory, { recursive: true, force: true });
  });

  function runLog(logFileMaxBytes = 1_000_000): RunLog {
    const log = new RunLog(join(directory, 'shard'), redactor(['verysecret']), {
      clock: systemClock,
      timings: { logPollMs: 5, logFileMaxBytes },
    });
    logs.push(log);
    return log;
  }
  const current = (): string => RunLog.currentFile(join(directory, 'shard'));

  it('reads what is appended, redacted, with the unfinished line last', async () => {
    const log = runLog();
    closeSync(log.openForRun());
    await log.follow();
    const seen: string[] = [];
    log.listen((lines) => seen.push(...lines));
    appendFileSync(current(), 'one verysecret\ntwo\nthr');
    await waitFor(() => seen.length === 2);
    expect(log.lines()).toEqual(['one [redacted]', 'two', 'thr']);
    appendFileSync(current(), 'ee\n');
    await waitFor(() => seen.length === 3);
    expect(seen).toEqual(['one [redacted]', 'two', 'three']);
  });

  it('keeps the run before, and only that', async () => {
    for (const text of ['first', 'second', 'third']) {
      const fd = runLog().openForRun();
      writeSync(fd, `${text}\n`);
      closeSync(fd);
    }
    const folder = join(directory, 'shard');
    expect(await readLogFile(RunLog.currentFile(folder), redactor([]))).toEqual(['third']);
    expect(await readLogFile(RunLog.previousFile(folder), redactor([]))).toEqual(['second']);
    expect(await readLogFile(join(folder, 'none'), redactor([]))).toEqual([]);
  });

  it('cuts a large file under a writer that keeps it open, and goes on reading', async () => {
    const log = runLog(10_000);
    const fd = log.openForRun();
    await log.follow();
    const line = `${'x'.repeat(99)}\n`;
    for (let count = 0; count < 200; count++) writeSync(fd, line);
    await waitFor(() => statSync(current()).size === 0, { what: 'the cut' });
    expect(existsSync(`${current()}.old`)).toBe(true);
    writeSync(fd, 'after the cut\n');
    await waitFor(() => log.lines().at(-1) === 'after the cut');
    // O_APPEND: the writer goes on at the new end, without a hole of zeros.
    expect(readFileSync(current(), 'utf8')).toBe('after the cut\n');
    closeSync(fd);
  });

  it('keeps a bounded number of lines and skips what comes faster than it reads', async () => {
    const log = runLog(100_000_000);
    closeSync(log.openForRun());
    appendFileSync(current(), `${'y'.repeat(999)}\n`.repeat(6_000));
    appendFileSync(current(), 'the end\n');
    await log.follow();
    await waitFor(() => log.lines().at(-1) === 'the end');
    expect(log.lines().length).toBeLessThanOrEqual(LOG_RING_LINES);
    expect(log.lines()[0]).toMatch(/bytes of output skipped/);
  });

  it('takes over a file that exists, and one that is gone', async () => {
    const fd = runLog().openForRun();
    writeSync(fd, 'of the agent before\n');
    closeSync(fd);
    const log = runLog();
    await log.follow(true);
    await waitFor(() => log.lines().length === 1);
    rmSync(join(directory, 'shard'), { recursive: true });
    const gone = runLog();
    await gone.follow(true);
    expect(gone.lines()).toEqual([]);
  });
});
