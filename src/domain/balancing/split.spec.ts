import { describe, expect, it } from 'vitest';
import { mix32 } from './text-hash.js';
import { chooseSide } from './split.js';

const split = (canary: number) => [
  { name: 'stable', weight: 100 - canary },
  { name: 'canary', weight: canary },
];

describe('chooseSide', () => {
  it('gives each side its share, by lot and by key', () => {
    let lot = 0;
    const random = () => mix32(lot++) / 2 ** 32;
    for (const key of [() => undefined, (i: number) => `session-${i}`]) {
      let canary = 0;
      for (let i = 0; i < 10_000; i++)
        if (chooseSide(split(10), key(i), random)?.name === 'canary') canary += 1;
      expect(canary / 10_000).toBeGreaterThan(0.08);
      expect(canary / 10_000).toBeLessThan(0.12);
    }
  });

  it('raising a canary takes no session out of it, ending it takes all', () => {
    const side = (i: number, canary: number) => chooseSide(split(canary), `session-${i}`, () => 0)?.name;
    for (let i = 0; i < 2_000; i++) {
      if (side(i, 5) === 'canary') expect(side(i, 10)).toBe('canary');
      expect(side(i, 0)).toBe('stable');
      expect(side(i, 100)).toBe('canary');
    }
  });

  it('has no side when nothing has weight', () => {
    expect(chooseSide([{ name: 'a', weight: 0 }], undefined, () => 0.5)).toBeUndefined();
    expect(chooseSide([{ name: 'a', weight: 0 }], 'key', () => 0.5)).toBeUndefined();
    expect(chooseSide([], undefined, () => 0.5)).toBeUndefined();
  });

  it('takes the last side for the greatest lot there is', () => {
    expect(chooseSide(split(50), undefined, () => 1 - 2 ** -53)?.name).toBe('canary');
    expect(chooseSide(split(0), undefined, () => 1 - 2 ** -53)?.name).toBe('stable');
  });
});
