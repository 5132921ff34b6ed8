import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { DEFAULT_EJECTION, EndpointHealth } from './ejection.js';
import type { EvidenceContext } from './ejection.js';

const at = (nowMs: number, changes: Partial<EvidenceContext> = {}): EvidenceContext => ({
  nowMs,
  random: 0.5,
  othersServing: 2,
  trial: false,
  ...changes,
});

function faults(health: EndpointHealth, n: number, nowMs: number, changes: Partial<EvidenceContext> = {}) {
  return Array.from({ length: n }, () => health.faulted(at(nowMs, changes)).outcome);
}

describe('faults in a row', () => {
  it('five eject; an answer in between starts the count anew', () => {
    const health = new EndpointHealth();
    expect(faults(health, 4, 0)).toEqual(['counted', 'counted', 'counted', 'counted']);
    health.worked(0);
    expect(faults(health, 5, 0).at(-1)).toBe('ejected');
    expect(health.verdict(0)).toBe('ejected');
    expect(health.ejectedBecause).toBe('faults');
  });

  it('never the last one', () => {
    const health = new EndpointHealth();
    expect(faults(health, 7, 0, { othersServing: 0 }).slice(4)).toEqual([
      'kept_last',
      'kept_last',
      'kept_last',
    ]);
    expect(health.verdict(0)).toBe('serving');
    expect(health.faulted(at(0)).outcome).toBe('ejected');
  });

  it('grows with each time out, is jittered, and is forgiven after a good while', () => {
    const health = new EndpointHealth();
    let now = 0;
    const outs: number[] = [];
    for (let round = 0; round < 6; round++) {
      faults(health, 5, now);
      outs.push(health.outUntilMs! - now);
      now = health.outUntilMs!;
      health.worked(now);
    }
    expect(outs).toEqual([5_000, 10_000, 20_000, 30_000, 30_000, 30_000]);
    health.worked(now + 200_000);
    now += 300_000;
    for (let i = 0; i < 5; i++) health.faulted(at(now, { random: 0 }));
    expect(health.outUntilMs! - now).toBe(4_000);
  });

  it('late failures of requests from before the time out do not lengthen it', () => {
    const health = new EndpointHealth();
    faults(health, 5, 0);
    const until = health.outUntilMs;
    expect(faults(health, 10, 1_000)).toEqual(Array(10).fill('ignored'));
    expect(health.outUntilMs).toBe(until);
  });
});

describe('trials', () => {
  function out(): EndpointHealth {
    const health = new EndpointHealth();
    faults(health, 5, 0);
    return health;
  }

  it('one request at a time tests it; success brings it back, failure doubles the time out', () => {
    const health = out();
    expect(health.verdict(4_999)).toBe('ejected');
    expect(health.verdict(5_000)).toBe('trial_due');
    health.trialStarted(5_000);
    expect(health.verdict(5_001)).toBe('trial_running');
    expect(health.faulted(at(5_100, { trial: true }))).toEqual({
      outcome: 'ejected',
      cause: 'failed_trial',
      untilMs: 15_100,
    });
    health.trialStarted(15_100);
    expect(health.worked(15_200)).toBe(true);
    expect(health.verdict(15_200)).toBe('serving');
    expect(health.worked(15_300)).toBe(false);
  });

  it('a trial that hangs lets a few more go, then no more', () => {
    const health = out();
    for (let trial = 0; trial < DEFAULT_EJECTION.maxTrials; trial++) {
      const nowMs = 5_000 + trial * DEFAULT_EJECTION.trialPatienceMs;
      expect(health.verdict(nowMs)).toBe('trial_due');
      health.trialStarted(nowMs);
    }
    expect(health.verdict(1_000_000)).toBe('trial_running');
    health.trialAbandoned();
    expect(health.verdict(1_000_000)).toBe('trial_due');
  });

  it('an abandoned trial proves nothing: the next may go at once', () => {
    const health = out();
    health.trialStarted(5_000);
    health.trialAbandoned();
    expect(health.verdict(5_001)).toBe('trial_due');
  });
});

describe('evidence of work', () => {
  it('first-token timeouts in a row prove death although probes pass', () => {
    const health = new EndpointHealth();
    const outcomes = [];
    for (let i = 0; i < 3; i++) {
      health.probed(true, 1, at(i * 1000));
      outcomes.push(health.timedOut(i * 1000, at(60_000 + i * 1000)).outcome);
    }
    expect(outcomes).toEqual(['counted', 'counted', 'ejected']);
    health.probed(true, 0, at(63_000));
    expect(health.verdict(63_000)).toBe('ejected');
  });

  it('bytes of other streams meanwhile show a long queue, not death', () => {
    const health = new EndpointHealth();
    for (let i = 0; i < 10; i++) {
      health.showedLife(i * 1000 + 500);
      expect(health.timedOut(i * 1000, at(i * 1000 + 900)).outcome).toBe('ignored');
    }
    expect(health.verdict(20_000)).toBe('serving');
  });

  it('bytes after it was called dead let a trial go at once', () => {
    const health = new EndpointHealth();
    for (let i = 0; i < 3; i++) health.timedOut(0, at(60_000));
    expect(health.verdict(60_001)).toBe('ejected');
    health.showedLife(60_002);
    expect(health.verdict(60_002)).toBe('trial_due');
  });

  it('probes alone never judge a busy engine', () => {
    const health = new EndpointHealth();
    for (let i = 0; i < 50; i++) expect(health.probed(false, 1, at(i * 1000)).outcome).toBe('ignored');
    expect(health.verdict(50_000)).toBe('serving');
  });

  it('three failed probes take an idle endpoint out; the first good one lets a trial go', () => {
    const health = new EndpointHealth();
    const outcomes = [0, 1, 2].map((i) => health.probed(false, 0, at(i * 1000)).outcome);
    expect(outcomes).toEqual(['counted', 'counted', 'ejected']);
    expect(health.verdict(3_000)).toBe('ejected');
    health.probed(true, 0, at(3_500));
    expect(health.verdict(3_500)).toBe('trial_due');
  });

  it('"busy" is a pause, not a fault', () => {
    const health = new EndpointHealth();
    for (let i = 0; i < 20; i++) health.busy(i, 1_000);
    expect(health.verdict(500)).toBe('cooling_down');
    expect(health.verdict(1_019)).toBe('serving');
    expect(health.consecutiveFaults).toBe(0);
  });
});

describe('properties', () => {
  const event = fc.record({
    who: fc.nat(3),
    what: fc.constantFrom('fault', 'timeout', 'probe failed', 'worked', 'life', 'trial'),
    afterMs: fc.nat(8_000),
    random: fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }),
  });

  it('a model always keeps an endpoint in good standing', () => {
    fc.assert(
      fc.property(fc.array(event, { maxLength: 150 }), (events) => {
        const fleet = Array.from({ length: 4 }, () => new EndpointHealth());
        let nowMs = 0;
        for (const { who, what, afterMs, random } of events) {
          nowMs += afterMs;
          const health = fleet[who]!;
          const othersServing = fleet.filter((o) => o !== health && o.ejectedBecause === undefined).length;
          const evidence = { nowMs, random, othersServing, trial: false };
          if (what === 'fault') health.faulted(evidence);
          else if (what === 'timeout') health.timedOut(nowMs - 1, evidence);
          else if (what === 'probe failed') health.probed(false, 0, evidence);
          else if (what === 'worked') health.worked(nowMs);
          else if (what === 'life') health.showedLife(nowMs);
          else if (health.verdict(nowMs) === 'trial_due') {
            health.trialStarted(nowMs);
            health.faulted({ ...evidence, trial: true });
          }
          expect(fleet.some((one) => one.ejectedBecause === undefined)).toBe(true);
          for (const one of fleet) {
            const leftMs = (one.outUntilMs ?? nowMs) - nowMs;
            expect(leftMs).toBeLessThanOrEqual(DEFAULT_EJECTION.maxMs * (1 + DEFAULT_EJECTION.jitter));
          }
        }
      }),
    );
  });
});
