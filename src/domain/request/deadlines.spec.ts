import { describe, expect, it } from 'vitest';
import {
  DEFAULT_DEADLINES,
  estimatePromptTokens,
  firstTokenDeadlineMs,
  idleLeftMs,
  phaseDeadline,
} from './deadlines.js';

describe('first token', () => {
  it('is a base plus a part per 1,000 prompt tokens, and off at 0', () => {
    expect(firstTokenDeadlineMs(DEFAULT_DEADLINES, 0)).toBe(60_000);
    expect(firstTokenDeadlineMs(DEFAULT_DEADLINES, 25_000)).toBe(85_000);
    expect(firstTokenDeadlineMs({ ...DEFAULT_DEADLINES, firstTokenMs: 0 }, 25_000)).toBeUndefined();
  });

  /** Base 3 s, 10 s of prefill for a 100 KB prompt: with a fixed wait every engine was given up in turn. */
  it('leaves a long prefill its time', () => {
    const policy = { ...DEFAULT_DEADLINES, firstTokenMs: 3_000 };
    expect(firstTokenDeadlineMs(policy, estimatePromptTokens(100_000))).toBeGreaterThan(10_000);
  });
});

describe('phaseDeadline', () => {
  const facts = { arrivedAtMs: 1_000, promptTokens: 0 };
  const off = { ...DEFAULT_DEADLINES, queueMs: 0, connectMs: 0, firstTokenMs: 0, idleMs: 0 };

  it('takes each phase its own limit', () => {
    const ms = (kind: 'queue' | 'connect' | 'firstToken' | 'idle') =>
      phaseDeadline(kind, DEFAULT_DEADLINES, facts, 1_000);
    expect(ms('queue')).toEqual({ kind: 'queue', inMs: 30_000 });
    expect(ms('connect')).toEqual({ kind: 'connect', inMs: 2_000 });
    expect(ms('firstToken')).toEqual({ kind: 'firstToken', inMs: 60_000 });
    expect(ms('idle')).toEqual({ kind: 'idle', inMs: 60_000 });
  });

  it('is cut by what is left of the total, which then bears the blame', () => {
    const policy = { ...DEFAULT_DEADLINES, totalMs: 5_000 };
    expect(phaseDeadline('firstToken', policy, facts, 3_000)).toEqual({ kind: 'total', inMs: 3_000 });
    expect(phaseDeadline('connect', policy, facts, 3_000)).toEqual({ kind: 'connect', inMs: 2_000 });
    expect(phaseDeadline('idle', policy, facts, 99_000)).toEqual({ kind: 'total', inMs: 0 });
  });

  it('is absent when switched off', () => {
    for (const kind of ['queue', 'connect', 'firstToken', 'idle'] as const) {
      expect(phaseDeadline(kind, off, facts, 1_000)).toBeUndefined();
      expect(phaseDeadline(kind, { ...off, totalMs: 100 }, facts, 1_000)).toEqual({
        kind: 'total',
        inMs: 100,
      });
    }
  });
});

describe('idle', () => {
  const progress = { lastEventAtMs: 0, clientSlow: false, clientResumedAtMs: 0 };
  it('runs between events', () => {
    expect(idleLeftMs(DEFAULT_DEADLINES, progress, 20_000)).toBe(40_000);
    expect(idleLeftMs(DEFAULT_DEADLINES, progress, 90_000)).toBe(0);
    expect(idleLeftMs({ ...DEFAULT_DEADLINES, idleMs: 0 }, progress, 90_000)).toBeUndefined();
  });
  it('stands while the client is the slow one, and starts afresh after', () => {
    expect(idleLeftMs(DEFAULT_DEADLINES, { ...progress, clientSlow: true }, 500_000)).toBeUndefined();
    expect(idleLeftMs(DEFAULT_DEADLINES, { ...progress, clientResumedAtMs: 500_000 }, 510_000)).toBe(50_000);
  });
});
