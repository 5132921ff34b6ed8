import { describe, expect, it } from 'vitest';

import { createLogger } from '../shared/logger.js';
import type { Clock } from '../shared/clock.js';
import { AccessLog } from './access-log.js';

describe('AccessLog', () => {
  it('shows the time as everybody else does', () => {
    const times = [
      0, 9, 10, 999, 1_000, 59_999, 60_000, 1_700_000_000_123.7, 1_700_000_000_124, 951_782_400_000,
    ];
    let wallMs = 0;
    const clock: Clock = {
      wallMs: () => wallMs,
      monotonicMs: () => 0,
      setTimer: () => ({ cancel: () => undefined }),
    };
    const written: string[] = [];
    const log = new AccessLog(
      createLogger({ level: 'info', format: 'json' }, (line) => written.push(line)),
      clock,
    );
    for (wallMs of times) {
      log.write({
        requestId: 'r',
        method: 'POST',
        route: '/v1/chat/completions',
        model: 'm1',
        status: 200,
        outcome: 'ok',
        durationMs: 1,
      });
    }
    log.flush();
    const shown = written
      .join('')
      .trim()
      .split('\n')
      .map((line) => (JSON.parse(line) as { time: string }).time);
    expect(shown).toEqual(times.map((ms) => new Date(ms).toISOString()));
  });

  // Lines are kept as single bytes, which other letters are not.
  it('writes names of all scripts, quotes and line breaks so that they can be read again', () => {
    const written: string[] = [];
    const clock: Clock = {
      wallMs: () => 0,
      monotonicMs: () => 0,
      setTimer: () => ({ cancel: () => undefined }),
    };
    const logger = createLogger({ level: 'info', format: 'json' }, (line) => written.push(line));
    const log = new AccessLog(logger, clock);
    const strange = 'modèle "你" \\ 😀 \u2028\n\x7f\x80\t~';
    const record = {
      requestId: 'r',
      method: 'POST',
      route: '/',
      model: strange,
      status: 200,
      outcome: 'ok',
      durationMs: 1,
    };
    log.write(record);
    log.write({ ...record, model: 'plain ~!{}' });
    log.flush();
    const lines = written.join('').trim().split('\n');
    expect(lines.map((line) => (JSON.parse(line) as { model: string }).model)).toEqual([
      strange,
      'plain ~!{}',
    ]);
  });
});
