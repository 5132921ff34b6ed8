import { hashText, mix32 } from './text-hash.js';

/** Smallest block: about 64 tokens. Finer ones buy nothing, an engine's own blocks are 16 tokens. */
const MIN_BLOCK_BYTES = 256;
/**
 * Later blocks are this share of the text before them. What two prompts share is so known to about 3 %, and a
 * two-megabyte prompt costs three times the blocks of a 32 KB one instead of sixty times.
 */
const BLOCK_SHARE = 32;
/** Text beyond the last edge (about 8 MB) is not compared. */
export const MAX_BLOCKS = 256;

/** `BLOCK_EDGES[i]`: bytes of text up to the end of block `i`. The same for all prompts, so that chains compare. */
export const BLOCK_EDGES: Uint32Array = blockEdges();

function blockEdges(): Uint32Array {
  const edges = new Uint32Array(MAX_BLOCKS);
  let edge = 0;
  for (let block = 0; block < MAX_BLOCKS; block++) {
    edge += Math.max(MIN_BLOCK_BYTES, Math.floor(edge / BLOCK_SHARE));
    edges[block] = edge;
  }
  return edges;
}

/** Hashes of a prompt's blocks, each over everything before it: equal hash means equal text up to that edge. */
export interface PromptChain {
  /** Blocks hashed: whole ones only. */
  readonly blocks: number;
  /** All text, the part after the last edge included. */
  readonly bytes: number;
  /** Two words per block: `words[2 * i]` and `words[2 * i + 1]`. */
  readonly words: Uint32Array;
}

/** A stretch of bytes of a prompt: tools, system, messages, in the order the engine's template puts them. */
export interface TextRange {
  readonly bytes: Uint8Array;
  readonly from: number;
  readonly to: number;
}

/** Room for the longest chain; a result is copied out at its real length. */
const scratch = new Uint32Array(2 * MAX_BLOCKS);

/**
 * Hashes the prompt's text block by block. Two prompts of one model (and LoRA adapter) that begin with the same
 * bytes have chains that begin with the same words, provided the ranges before the difference are cut alike.
 * One pass, about 1 ns a byte; what the caller must not pass is anything that differs per request before the text
 * (ids, timestamps, the order of JSON members).
 */
export function hashPrompt(ranges: readonly TextRange[], model: string, lora = ''): PromptChain {
  const seed = hashText(lora, hashText(model));
  let low = seed;
  let high = mix32(seed + 1);
  let block = 0;
  let offset = 0;
  let total = 0;
  for (const { bytes, from, to } of ranges) {
    total += to - from;
    let at = from;
    while (at < to && block < MAX_BLOCKS) {
      const edge = BLOCK_EDGES[block]!;
      const end = Math.min(to, at + edge - offset);
      offset += end - at;
      const lastWord = end - 3;
      for (; at < lastWord; at += 4) {
        const word = bytes[at]! | (bytes[at + 1]! << 8) | (bytes[at + 2]! << 16) | (bytes[at + 3]! << 24);
        low = Math.imul(low ^ word, 0x9e3779b1);
        low ^= low >>> 15;
        high = Math.imul(high + word, 0x85ebca77);
        high ^= high >>> 13;
      }
      for (; at < end; at++) {
        low = Math.imul(low ^ bytes[at]!, 0x01000193);
        high = Math.imul(high + bytes[at]!, 0xcc9e2d51);
        high ^= high >>> 13;
      }
      if (offset === edge) {
        scratch[2 * block] = mix32(low);
        scratch[2 * block + 1] = mix32(high ^ offset);
        block += 1;
      }
    }
  }
  return { blocks: block, bytes: total, words: scratch.slice(0, 2 * block) };
}

/** Bytes of text in the first `blocks` blocks. */
export function bytesOfBlocks(blocks: number): number {
  return blocks === 0 ? 0 : BLOCK_EDGES[blocks - 1]!;
}
