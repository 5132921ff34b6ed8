import { describe, expect, it } from 'vitest';
import { afterCanary, judgeLiveness, newLivenessMemory, type LivenessLook } from './liveness.js';

const LIMITS = { livenessRefusals: 3, stallMs: 120_000, canaryIntervalMs: 60_000, canaryMisses: 2 };

/** Looks five seconds apart; the last judgement counts. */
function judged(looks: readonly LivenessLook[], stepMs = 5_000) {
  let memory = newLivenessMemory(0);
  let atMs = 0;
  let last: ReturnType<typeof judgeLiveness> | undefined;
  for (const look of looks) {
    atMs += stepMs;
    last = judgeLiveness(memory, look, atMs, LIMITS);
    memory = last.memory;
  }
  return { unhealthy: last?.unhealthy, canaryDue: last?.canaryDue, memory, atMs };
}
const times = (count: number, look: (index: number) => LivenessLook): LivenessLook[] =>
  Array.from({ length: count }, (_, index) => look(index));
const working = (running: number, progress: number): LivenessLook => ({
  kind: 'answer',
  work: { running, waiting: 0, progress },
});

describe('judgeLiveness', () => {
  it('leaves a busy engine alone that misses its probes for minutes', () => {
    expect(
      judged(times(100, (index) => ({ kind: 'timeout', cpuTicks: index * 400 }))).unhealthy,
    ).toBeUndefined();
  });

  it('concludes nothing where nothing can be measured', () => {
    expect(judged(times(100, () => ({ kind: 'timeout' }))).unhealthy).toBeUndefined();
    expect(judged(times(100, () => ({ kind: 'answer', work: {} }))).unhealthy).toBeUndefined();
  });

  it('finds an engine that neither answers nor uses a processor', () => {
    const looks = times(26, (): LivenessLook => ({ kind: 'timeout', cpuTicks: 1_000 }));
    expect(judged(looks.slice(0, 20)).unhealthy).toBeUndefined();
    expect(judged(looks).unhealthy).toMatch(/no token was made for 12\d s/);
  });

  it('needs refusals in a row', () => {
    const refused: LivenessLook = { kind: 'refused' };
    expect(judged([refused, refused]).unhealthy).toBeUndefined();
    expect(judged([refused, refused, working(0, 1), refused, refused]).unhealthy).toBeUndefined();
    expect(judged([refused, refused, refused]).unhealthy).toMatch(/refused 3 connections/);
  });

  it('finds requests that stand still, counted from when they began', () => {
    const idle = times(100, () => working(0, 7));
    expect(judged([...idle, ...times(20, () => working(2, 7))]).unhealthy).toBeUndefined();
    expect(judged([...idle, ...times(30, () => working(2, 7))]).unhealthy).toMatch(/requests are running/);
    expect(judged([...idle, ...times(100, (index) => working(2, 7 + index))]).unhealthy).toBeUndefined();
  });

  it('recovers with the first token', () => {
    const stuck = times(40, () => working(2, 7));
    expect(judged([...stuck, working(2, 8)]).unhealthy).toBeUndefined();
  });

  it('asks for a token only when the engine is idle and says so', () => {
    expect(judged(times(13, () => working(0, 7))).canaryDue).toBe(true);
    expect(judged(times(3, () => working(0, 7))).canaryDue).toBe(false);
    expect(judged(times(13, () => working(1, 7))).canaryDue).toBe(false);
    expect(judged(times(13, () => ({ kind: 'answer', work: {} }))).canaryDue).toBe(false);
  });

  it('calls an idle engine hung after two canaries without an answer, unless it got busy meanwhile', () => {
    const { memory, atMs } = judged(times(13, () => working(0, 7)));
    const once = afterCanary(memory, false, false, atMs);
    expect(judgeLiveness(once, working(0, 7), atMs, LIMITS).unhealthy).toBeUndefined();
    const twice = afterCanary(once, false, false, atMs);
    expect(judgeLiveness(twice, working(0, 7), atMs, LIMITS).unhealthy).toMatch(/2 requests for one token/);
    const busy = afterCanary(once, false, true, atMs);
    expect(judgeLiveness(busy, working(0, 7), atMs, LIMITS).unhealthy).toBeUndefined();
    expect(
      judgeLiveness(afterCanary(twice, true, false, atMs), working(0, 7), atMs, LIMITS).unhealthy,
    ).toBeUndefined();
  });
});
