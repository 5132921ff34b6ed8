/** Runs histories and tells of the first broken invariant of each, with the command that shows it again. */
import { Broken, World } from './world.js';

export interface SeedFailure {
  readonly seed: number;
  readonly invariant: string;
  readonly message: string;
  readonly atMs: number;
}

/** One history; undefined when every invariant held. Errors that are not broken invariants count as broken, too. */
export function runSeed(
  seed: number,
  steps: number,
  counts?: Map<string, number>,
  trace?: (line: string) => void,
): SeedFailure | undefined {
  const world = new World(seed);
  world.trace = trace;
  try {
    world.run(steps);
    return undefined;
  } catch (error) {
    const invariant = error instanceof Broken ? error.invariant : 'exception';
    const message =
      error instanceof Error
        ? error instanceof Broken
          ? error.message
          : (error.stack ?? error.message)
        : String(error);
    return { seed, invariant, message, atMs: Math.round(world.nowMs) };
  } finally {
    if (counts !== undefined)
      for (const [name, count] of world.counts) counts.set(name, (counts.get(name) ?? 0) + count);
  }
}
