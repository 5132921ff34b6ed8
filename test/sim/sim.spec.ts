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

  it.each([
    [4, 'both copies of a model left at once, one for its successor and one to make room'],
    [364, 'the failures of a moved replica were forgotten with its room'],
    [994, 'a room was taken for good while one of its devices was not'],
    [5694, 'a copy was sent away for one that came back, while others failed in the same pass'],
    [5704, 'a plan was refused in which one was too many and another made room'],
    [6380, 'a plan was refused in which one was too many and another left at its deadline'],
    [2014, 'one that no longer had to make room came back a pass late'],
    [1289, 'a copy was one too many once the room it left for was no longer needed'],
    [9338, 'two profiles of one replica could not work on the same node'],
    [9399, 'a model came to need more machines while it stood where others had made room'],
    [20109, 'a model came to need more machines after the room it was given was long in use'],
    [
      30108,
      'a copy was stopped after a sleep although its drain was taken back and its successor had failed',
    ],
    [30127, 'a node came back while too many others were silent for anything to be decided'],
    [40340, 'a drain was taken back between its deadline and the end of the streams'],
    [40371, 'a copy was one too many in the moment in which it proved dead'],
    [40393, 'the streams of a gang outlived its node'],
    [41320, 'a copy was handed over to one that had to go at its deadline'],
    [60126, 'a silent copy that served was sent away before one that never did'],
    [60409, 'a machine had devices to spare and no port'],
    [61534, 'the room asked for in a pass made one leave while another was one too many'],
    [256, 'an engine was published whose last word before its node fell silent was that it is unhealthy'],
    [41984, 'a place given and taken back in one pass was not free in it'],
    [
      810204,
      'the next of a model to make room was not told in the pass in which the last one was seen to be gone',
    ],
  ])('keeps them in history %i, in which %s', (seed) => {
    expect(runSeed(seed, 3_000)).toBeUndefined();
  });

  it('keeps them in history 164, where an older copy of the store names a place that was taken since', () => {
    expect(runSeed(164, 5_000)).toBeUndefined();
  });

  it('keeps them in history 749, where a gang serves before the word of its rank 1 is there', () => {
    expect(runSeed(749, 3_000)).toBeUndefined();
  });
});

describe('planted bugs', () => {
  it('are at least 25, and each has its place in the sources', () => {
    expect(MUTANTS.length).toBeGreaterThanOrEqual(25);
    for (const { name, file, find } of MUTANTS)
      expect(readFileSync(file, 'utf8').split(find).length - 1, name).toBe(1);
  });
});
