import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

import { seededRandom, type Random } from '../../src/shared/random.js';

/**
 * Seeded fuzzing, small enough for every test run. `LLMGW_FUZZ_RUNS` sets the number of runs per test to go further,
 * `LLMGW_FUZZ_SEED` the first seed; a failure names the seed that replays it. An input that once found a fault is
 * kept as a file in `corpus/<parser>/` and replayed first, every time.
 */
export function fuzz(
  defaultRuns: number,
  one: (random: Random) => void | Promise<void>,
): () => Promise<void> {
  return async () => {
    const runs = numberFrom('LLMGW_FUZZ_RUNS', defaultRuns);
    const firstSeed = numberFrom('LLMGW_FUZZ_SEED', 1);
    for (let seed = firstSeed; seed < firstSeed + runs; seed++) {
      try {
        // oxlint-disable-next-line no-await-in-loop
        await one(seededRandom(seed));
      } catch (error) {
        throw new Error(`fails with LLMGW_FUZZ_SEED=${seed} LLMGW_FUZZ_RUNS=1`, { cause: error });
      }
    }
  };
}

/** How many runs a fuzz test may make before the test's own deadline; scaled with the runs asked for. */
export function fuzzTimeoutMs(): number {
  return 20_000 + numberFrom('LLMGW_FUZZ_RUNS', 0) * 50;
}

export interface CorpusFile {
  readonly name: string;
  readonly bytes: Buffer;
}

/** The kept inputs of one parser. */
export function corpusOf(parser: string): CorpusFile[] {
  const folder = fileURLToPath(new URL(`corpus/${parser}/`, import.meta.url));
  return readdirSync(folder)
    .toSorted()
    .map((name) => ({ name, bytes: readFileSync(folder + name) }));
}

/** A whole number in `from`..`to`, both included. */
export function between(random: Random, from: number, to: number): number {
  return from + Math.floor(random() * (to - from + 1));
}

export function pick<T>(random: Random, items: readonly T[]): T {
  const item = items[Math.floor(random() * items.length)];
  if (item === undefined) throw new Error('nothing to pick from');
  return item;
}

/** Cuts bytes into pieces at random places; small pieces are as likely as large ones. */
export function randomSplit(random: Random, bytes: Buffer): Buffer[] {
  const style = random();
  if (style < 0.15) return [bytes];
  const largest = style < 0.4 ? 1 : style < 0.7 ? 7 : 64;
  const pieces: Buffer[] = [];
  for (let at = 0; at < bytes.length;) {
    const length = between(random, 1, largest);
    pieces.push(bytes.subarray(at, at + length));
    at += length;
  }
  return pieces;
}

/**
 * A copy with one to four small wounds: a byte changed, a piece dropped, doubled or moved, a token put in, the end cut.
 * Tokens are what the format finds meaningful, so that wounds hit its joints and not only its text.
 */
export function mutate(random: Random, bytes: Buffer, tokens: readonly string[]): Buffer {
  let current = bytes;
  for (let left = between(random, 1, 4); left > 0; left--) current = mutateOnce(random, current, tokens);
  return current;
}

function mutateOnce(random: Random, bytes: Buffer, tokens: readonly string[]): Buffer {
  const at = between(random, 0, bytes.length);
  const end = Math.min(bytes.length, at + between(random, 1, 12));
  const [before, piece, after] = [bytes.subarray(0, at), bytes.subarray(at, end), bytes.subarray(end)];
  switch (between(random, 0, 6)) {
    case 0:
      return Buffer.concat([before, Buffer.from([between(random, 0, 255)]), bytes.subarray(at + 1)]);
    case 1:
      return Buffer.concat([before, after]);
    case 2:
      return Buffer.concat([before, piece, piece, after]);
    case 3:
      return Buffer.concat([after, piece, before]);
    case 4:
      return before;
    default:
      return Buffer.concat([before, Buffer.from(pick(random, tokens)), bytes.subarray(at)]);
  }
}

/** The same bytes in the middle of other memory, at any alignment: nothing outside the buffer may be looked at. */
export function inStrangeMemory(random: Random, bytes: Buffer, surroundings: string): Buffer {
  const offset = between(random, 0, 9);
  const memory = Buffer.alloc(offset + bytes.length + between(random, 0, 9), surroundings);
  bytes.copy(memory, offset);
  return memory.subarray(offset, offset + bytes.length);
}

function numberFrom(name: string, fallback: number): number {
  const value = process.env[name];
  return value === undefined || value === '' ? fallback : Number(value);
}
