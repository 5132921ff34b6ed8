import { hashBytes } from './hashing.js';

/** One simulated token is this many bytes of the rendered prompt: close to what real vocabularies do with English. */
export const BYTES_PER_TOKEN = 4;

/** How many tokens `bytes` of prompt are. */
export function tokenCount(bytes: number): number {
  return Math.ceil(bytes / BYTES_PER_TOKEN);
}

/**
 * Hashes of the prompt's full blocks; each covers all that stands before it, so that equal hashes mean equal prefixes.
 * A part of a block at the end has none, as in real engines. `before` is the hash of the block that `prompt` follows on.
 */
export function blockHashes(prompt: Uint8Array, blockTokens: number, before = 0): number[] {
  const blockBytes = blockTokens * BYTES_PER_TOKEN;
  const hashes: number[] = [];
  let hash = before;
  for (let end = blockBytes; end <= prompt.length; end += blockBytes) {
    hash = hashBytes(prompt, end - blockBytes, end, hash);
    hashes.push(hash);
  }
  return hashes;
}

/** A bounded prefix cache: which blocks of prompts are in memory, the least recently used leave first. */
export class PrefixCache {
  // A Map keeps insertion order; the first key is the least recently used.
  private readonly blocks = new Set<number>();

  constructor(private readonly capacityBlocks: number) {}

  get size(): number {
    return this.blocks.size;
  }

  /** How many blocks at the start of the chain are cached. Changes nothing. */
  match(hashes: readonly number[]): number {
    let count = 0;
    while (count < hashes.length && this.blocks.has(hashes[count] ?? -1)) count++;
    return count;
  }

  /** Marks a chain as just used, adding what is missing and dropping the oldest blocks beyond the capacity. */
  touch(hashes: readonly number[]): void {
    // From the end: a block is useless without the ones before it, so the deepest must be the first to leave.
    for (let i = Math.min(hashes.length, this.capacityBlocks) - 1; i >= 0; i--) {
      const hash = hashes[i] ?? -1;
      this.blocks.delete(hash);
      this.blocks.add(hash);
    }
    for (const oldest of this.blocks) {
      if (this.blocks.size <= this.capacityBlocks) break;
      this.blocks.delete(oldest);
    }
  }

  clear(): void {
    this.blocks.clear();
  }
}
