import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { BLOCK_EDGES, MAX_BLOCKS, bytesOfBlocks, hashPrompt } from './prompt-chain.js';
import type { PromptChain } from './prompt-chain.js';

const bytes = (length: number, salt = 0) => Uint8Array.from({ length }, (_, at) => (at * 31 + salt) & 255);
const whole = (text: Uint8Array) => hashPrompt([{ bytes: text, from: 0, to: text.length }], 'm');

function common(a: PromptChain, b: PromptChain): number {
  let blocks = 0;
  while (
    blocks < Math.min(a.blocks, b.blocks) &&
    a.words[2 * blocks] === b.words[2 * blocks] &&
    a.words[2 * blocks + 1] === b.words[2 * blocks + 1]
  ) {
    blocks += 1;
  }
  return blocks;
}

function edgesWithin(length: number): number {
  return BLOCK_EDGES.filter((edge) => edge <= length).length;
}

describe('block edges', () => {
  it('start at 256 bytes, grow to 3 % of what lies before, and reach 8 MB in 256 blocks', () => {
    expect([...BLOCK_EDGES.slice(0, 3)]).toEqual([256, 512, 768]);
    for (let block = 1; block < MAX_BLOCKS; block++) {
      const size = BLOCK_EDGES[block]! - BLOCK_EDGES[block - 1]!;
      expect(size).toBeLessThanOrEqual(Math.max(256, BLOCK_EDGES[block - 1]! / 32));
    }
    expect(BLOCK_EDGES[MAX_BLOCKS - 1]).toBeGreaterThan(8_000_000);
    expect(edgesWithin(32_000)).toBeLessThan(80);
    expect(bytesOfBlocks(0)).toBe(0);
    expect(bytesOfBlocks(2)).toBe(512);
  });
});

describe('hashPrompt', () => {
  it('covers whole blocks only and counts all bytes', () => {
    expect(whole(bytes(255))).toMatchObject({ blocks: 0, bytes: 255 });
    expect(whole(bytes(256))).toMatchObject({ blocks: 1, bytes: 256 });
    expect(whole(bytes(1_000))).toMatchObject({ blocks: 3, bytes: 1_000 });
  });

  it('is bounded for any prompt', () => {
    const chain = whole(new Uint8Array(12_000_000));
    expect(chain).toMatchObject({ blocks: MAX_BLOCKS, bytes: 12_000_000 });
  });

  it('two texts have in common exactly the blocks before their first difference', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 300, max: 20_000 }),
        fc.nat(),
        fc.integer({ min: 1, max: 255 }),
        (length, at, flip) => {
          const text = bytes(length);
          const other = text.slice();
          other[at % length]! ^= flip;
          expect(common(whole(text), whole(other))).toBe(edgesWithin(at % length));
        },
      ),
    );
  });

  it('a longer text begins with the chain of the shorter, wherever the shorter ends', () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 9_000 }), fc.integer({ min: 0, max: 9_000 }), (length, more) => {
        const short = whole(bytes(length));
        const long = whole(bytes(length + more));
        expect(common(short, long)).toBe(short.blocks);
      }),
    );
  });

  it('ranges are read as one text, from the middle of a body and from several', () => {
    const text = bytes(5_000);
    const tools = { bytes: text, from: 0, to: 1_234 };
    const messages = { bytes: text, from: 1_234, to: 5_000 };
    const split = hashPrompt([tools, messages], 'm');
    const again = hashPrompt([tools, { bytes: bytes(6_000).subarray(1_000), from: 234, to: 4_500 }], 'm');
    expect(split.bytes).toBe(5_000);
    expect(common(split, again)).toBe(split.blocks);
  });

  it('seeds with model and adapter', () => {
    const range = [{ bytes: bytes(300), from: 0, to: 300 }];
    const first = [hashPrompt(range, 'm'), hashPrompt(range, 'n'), hashPrompt(range, 'm', 'a')].map(
      (c) => c.words[0],
    );
    expect(new Set(first).size).toBe(3);
  });

  it('does not collide on near-equal texts', () => {
    const seen = new Set<string>();
    const text = new Uint8Array(256);
    for (let i = 0; i < 20_000; i++) {
      text[i % 256] = i & 255;
      text[(i * 7) % 256] = i >> 8;
      seen.add(`${[...text].join()}`);
    }
    const hashes = new Set<string>();
    for (const key of seen) {
      const chain = whole(Uint8Array.from(key.split(',').map(Number)));
      hashes.add(`${chain.words[0]}:${chain.words[1]}`);
    }
    expect(hashes.size).toBe(seen.size);
  });
});
