/** A source of numbers in [0, 1). Passed in wherever chance is needed, so that tests can seed it. */
export type Random = () => number;

/** The process's own source of chance; only outermost shells may use it. */
export const systemRandom: Random = () => Math.random();

/**
 * A small seeded generator (mulberry32): the same seed gives the same sequence on every machine.
 * For tests, simulations and reproducible text; never for secrets.
 */
export function seededRandom(seed: number): Random {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

/** Token under which chance is injected. */
export const RANDOM = Symbol('Random');
