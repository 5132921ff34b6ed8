import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { MUTANTS } from './mutants.js';
import { runSeed } from './run-seeds.js';

describe('the simulated cluster', () => {
  // A few histories in every test run; the long ones are `npm run sim`.
  it.each([1, 2, 3, 4, 5, 6, 7, 8])('keeps every invariant under the faults of seed %i', (seed) => {
    expect(runSeed(seed, 1_000)).toBeUndefined();
  });

  it.each([12, 37, 145, 1018, 1146, 3022, 3088, 5062, 6003])(
    'keeps them in history %i, which once broke one',
    (seed) => {
      expect(runSeed(seed, 1_000)).toBeUndefined();
    },
  );
});

describe('planted bugs', () => {
  it('are at least 25, and each has its place in the sources', () => {
    expect(MUTANTS.length).toBeGreaterThanOrEqual(25);
    for (const { name, file, find } of MUTANTS)
      expect(readFileSync(file, 'utf8').split(find).length - 1, name).toBe(1);
  });
});
