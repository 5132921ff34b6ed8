import { describe, expect, it } from 'vitest';
import { seededRandom } from '../shared/random.js';
import { DEFAULT_TIMINGS } from './limits.js';
import { FIRST_DIAL, nextDial, type DialEnd, type DialMemory } from './reconnect.js';

const top = (): number => 0.999_999;

function pauses(ends: readonly DialEnd[], random = top): number[] {
  let memory: DialMemory = FIRST_DIAL;
  return ends.map((end) => {
    const next = nextDial(memory, end, random, DEFAULT_TIMINGS);
    memory = next.memory;
    return Math.round(next.pauseMs);
  });
}

const failed: DialEnd = { kind: 'failed' };

describe('nextDial', () => {
  it('doubles its ceiling up to the cap', () => {
    expect(pauses(Array.from({ length: 9 }, () => failed))).toEqual([
      500, 1_000, 2_000, 4_000, 8_000, 15_000, 15_000, 15_000, 15_000,
    ]);
  });

  it('does not take a server that hangs up at once for a healthy one', () => {
    const lost: DialEnd = { kind: 'lost', livedMs: 1_000 };
    expect(pauses([lost, lost, lost, lost])).toEqual([500, 1_000, 2_000, 4_000]);
  });

  it('starts small again after a session that lived', () => {
    expect(pauses([failed, failed, { kind: 'lost', livedMs: 30_000 }, failed])).toEqual([
      500, 1_000, 500, 500,
    ]);
  });

  it('waits long after a refusal, and never all at the same moment', () => {
    expect(pauses([{ kind: 'refused' }], top)).toEqual([60_000]);
    expect(pauses([{ kind: 'refused' }], () => 0)).toEqual([30_000]);
  });

  it('asks soon again while another holds the node id, and never all at the same moment', () => {
    expect(pauses([{ kind: 'taken' }], top)).toEqual([10_000]);
    expect(pauses([{ kind: 'taken' }], () => 0)).toEqual([5_000]);
  });

  it('spreads two hundred agents that lost the same server', () => {
    const random = seededRandom(7);
    const perSecond = new Map<number, number>();
    const connected: number[] = [];
    for (let agent = 0; agent < 200; agent++) {
      let memory: DialMemory = FIRST_DIAL;
      let atMs = 0;
      // The server is back after a minute.
      for (;;) {
        const next = nextDial(memory, failed, random, DEFAULT_TIMINGS);
        memory = next.memory;
        atMs += next.pauseMs;
        if (atMs >= 60_000) break;
      }
      connected.push(atMs);
      const second = Math.floor(atMs / 1_000);
      perSecond.set(second, (perSecond.get(second) ?? 0) + 1);
    }
    expect(Math.max(...connected)).toBeLessThanOrEqual(75_000);
    expect(Math.max(...perSecond.values())).toBeLessThan(30);
  });
});
