import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { PrefixCacheModel } from './prefix-cache-model.js';
import { PrefixHeat } from './prefix-heat.js';
import { PrefixIndex } from './prefix-index.js';
import { bytesOfBlocks, hashPrompt } from './prompt-chain.js';
import type { PromptChain } from './prompt-chain.js';
import { mix32 } from './text-hash.js';

/** Made-up text of its own for each seed. */
function text(seed: number, bytes: number): Uint8Array {
  return new Uint8Array(
    Uint32Array.from({ length: bytes / 4 }, (_, at) => mix32(seed * 1_000_003 + at)).buffer,
  );
}

function prompt(...parts: readonly (readonly [seed: number, bytes: number])[]): PromptChain {
  const ranges = parts.map(([seed, bytes]) => ({ bytes: text(seed, bytes), from: 0, to: bytes }));
  return hashPrompt(ranges, 'm');
}

const TOKENS = (chain: PromptChain) => chain.bytes / 4;

describe('PrefixCacheModel', () => {
  const model = () => new PrefixCacheModel(1 << 12, 1);

  it('finds how much of a prompt was sent before', () => {
    const cache = model();
    cache.record(prompt([1, 8_000], [2, 1_000]), 0);
    for (const bytes of [0, 200, 256, 3_000, 8_000]) {
      const chain = prompt([1, bytes], [3, 4_000]);
      let shared = 0;
      while (bytesOfBlocks(shared + 1) <= bytes) shared += 1;
      expect(cache.cachedBlocks(chain)).toBe(shared);
    }
    expect(cache.cachedBlocks(prompt())).toBe(0);
  });

  it('a restarted generation is cold, though the table is the same', () => {
    const cache = model();
    const chain = prompt([1, 8_000]);
    cache.record(chain, 0);
    cache.record(chain, 0);
    cache.restart(2);
    expect(cache.cachedBlocks(chain)).toBe(0);
    cache.record(prompt([2, 4_000]), 0);
    expect(cache.cachedBlocks(chain)).toBe(0);
    cache.record(chain, 0);
    expect(cache.cachedBlocks(chain)).toBe(chain.blocks);
  });

  it('what is older than the window counts as evicted, used text stays young', () => {
    const cache = model();
    cache.setWindowBytes(64_000);
    const old = prompt([1, 8_000]);
    const kept = prompt([2, 8_000]);
    cache.record(old, 0);
    cache.record(kept, 0);
    for (let i = 0; i < 10; i++) {
      cache.record(prompt([100 + i, 8_000]), 0);
      cache.record(kept, 0);
    }
    expect(cache.cachedBlocks(old)).toBe(0);
    expect(cache.cachedBlocks(kept)).toBe(kept.blocks);
  });

  it('never remembers more than its table, and forgets the oldest first', () => {
    const cache = new PrefixCacheModel(256, 1);
    for (let i = 0; i < 500; i++) cache.record(prompt([i, 2_048]), 0);
    expect(cache.entries).toBeLessThanOrEqual(256);
    expect(cache.bytes).toBe(256 * 8);
    expect(cache.cachedBlocks(prompt([499, 2_048]))).toBe(8);
    expect(cache.cachedBlocks(prompt([0, 2_048]))).toBe(0);
  });

  it('never claims text that was not sent', () => {
    fc.assert(
      fc.property(
        fc.array(fc.tuple(fc.nat(5), fc.integer({ min: 1, max: 2_000 }), fc.nat(50)), { maxLength: 40 }),
        (sends) => {
          const cache = new PrefixCacheModel(64, 1);
          const sent: [seed: number, bytes: number][] = [];
          for (const [seed, words, tail] of sends) {
            const chain = prompt([seed, words * 4], [1_000 + tail, 2_000]);
            const longest = Math.max(
              0,
              ...sent.map(([s, bytes]) => (s === seed ? Math.min(bytes, words * 4) : 0)),
            );
            const same = sends
              .slice(0, sent.length)
              .some(([s, w, t]) => s === seed && w === words && t === tail);
            const bound = same ? chain.bytes : longest;
            expect(bytesOfBlocks(cache.cachedBlocks(chain))).toBeLessThanOrEqual(bound);
            cache.record(chain, 0);
            sent.push([seed, words * 4]);
          }
        },
      ),
    );
  });
});

describe('learning from usage', () => {
  /** An engine with a true LRU over whole prompts, for comparison. */
  function engine(capacityBytes: number) {
    let held: { seed: number; bytes: number }[] = [];
    return (seed: number, bytes: number): number => {
      const hit = held.some((one) => one.seed === seed);
      held = [{ seed, bytes }, ...held.filter((one) => one.seed !== seed)];
      let room = capacityBytes;
      held = held.filter((one) => (room -= one.bytes) >= 0);
      return hit ? bytes / 4 : 0;
    };
  }

  /** Replays `rounds` prompts drawn from `seeds` texts; share of predictions that were right in the last quarter. */
  function replay(capacityBytes: number, seeds: number, rounds: number, priorWindow?: number) {
    const cache = new PrefixCacheModel(1 << 14, 1);
    if (priorWindow !== undefined) cache.setWindowBytes(priorWindow);
    const ask = engine(capacityBytes);
    let lot = 1;
    let right = 0;
    let judged = 0;
    for (let i = 0; i < rounds; i++) {
      lot = mix32(lot + 0x9e3779b9);
      const seed = lot % seeds;
      const chain = prompt([seed, 8_192]);
      const prediction = cache.record(chain, 0);
      const cachedTokens = ask(seed, 8_192);
      cache.learn(prediction, { promptTokens: TOKENS(chain), cachedTokens, completionTokens: 0 });
      if (i < (rounds * 3) / 4) continue;
      judged += 1;
      if (prediction.predictedBytes > 0 === cachedTokens > 0) right += 1;
    }
    return { cache, right: right / judged };
  }

  it('finds a cache much smaller than assumed', () => {
    const { cache, right } = replay(20 * 8_192, 60, 3_000);
    expect(cache.windowBytes).toBeLessThan(30 * 8_192);
    expect(right).toBeGreaterThan(0.88);
  });

  it('finds a cache much larger than assumed', () => {
    const { cache, right } = replay(100 * 8_192, 80, 3_000, 16 << 10);
    expect(cache.windowBytes).toBeGreaterThan(50 * 8_192);
    expect(right).toBeGreaterThan(0.95);
  });

  it('stops trusting an engine that caches nothing, and trusts it again when it does', () => {
    const cache = new PrefixCacheModel(1 << 12, 1);
    const chain = prompt([1, 8_192]);
    const usage = (cachedTokens: number) => ({ promptTokens: 2_048, cachedTokens, completionTokens: 0 });
    for (let i = 0; i < 100; i++) cache.learn(cache.record(chain, 0), usage(0));
    expect(cache.confidence).toBeLessThan(0.05);
    for (let i = 0; i < 100; i++) cache.learn(cache.record(chain, 0), usage(2_048));
    expect(cache.confidence).toBeGreaterThan(0.95);
  });
});

describe('PrefixIndex', () => {
  const owner = (id: string, generation = 1) => ({ id, generation });
  const chain = prompt([1, 4_096]);

  it('keeps endpoints and generations apart', () => {
    const index = new PrefixIndex();
    index.record(owner('a'), chain);
    expect(index.find(owner('a'))?.cachedBlocks(chain)).toBe(chain.blocks);
    expect(index.find(owner('b'))).toBeUndefined();
    expect(index.find(owner('a', 2))).toBeUndefined();
    index.record(owner('a', 2), prompt([2, 4_096]));
    expect(index.find(owner('a', 2))?.cachedBlocks(chain)).toBe(0);
    expect(index.find(owner('a', 1))).toBeUndefined();
  });

  it('a dropped endpoint is forgotten and its table used again', () => {
    const index = new PrefixIndex();
    index.record(owner('a'), chain);
    const { bytes } = index;
    index.drop('a');
    index.drop('a');
    expect([index.bytes, index.entries]).toEqual([bytes, 0]);
    index.record(owner('b'), prompt([2, 4_096]));
    expect(index.bytes).toBe(bytes);
    expect(index.find(owner('b'))?.cachedBlocks(chain)).toBe(0);
  });

  it('stays within its bytes however many endpoints come and go; the longest unused give way', () => {
    const max = 1 << 20;
    const index = new PrefixIndex(max);
    for (let i = 0; i < 500; i++) {
      index.record(owner(`e${i}`), chain);
      index.record(owner('busy'), chain);
      expect(index.bytes).toBeLessThanOrEqual(max);
    }
    expect(index.find(owner('busy'))?.cachedBlocks(chain)).toBe(chain.blocks);
    expect(index.find(owner('e499'))?.cachedBlocks(chain)).toBe(chain.blocks);
    expect(index.find(owner('e0'))).toBeUndefined();
  });

  it('refuses a bound too small to hold anything', () => {
    expect(() => new PrefixIndex(1_000)).toThrow(/at least 16384 bytes/);
  });

  it('sums predicted and delivered tokens', () => {
    const index = new PrefixIndex();
    const usage = { promptTokens: 1_024, cachedTokens: 1_000, completionTokens: 10 };
    index.learn(owner('a'), index.record(owner('a'), chain), { ...usage, cachedTokens: 0 });
    index.learn(owner('a'), index.record(owner('a'), chain), usage);
    expect(index.totals).toEqual({ predictedTokens: 1_024, deliveredTokens: 1_000 });
  });
});

describe('PrefixHeat', () => {
  it('counts of late, not of all time', () => {
    const heat = new PrefixHeat();
    let count = 0;
    for (let i = 0; i < 500; i++) {
      heat.tick();
      if (i % 10 === 0) count = heat.add(7, 40);
    }
    expect(count).toBeGreaterThan(3.5);
    expect(count).toBeLessThan(5.5);
    for (let i = 0; i < 400; i++) heat.tick();
    expect(heat.add(7, 40)).toBeLessThan(1.01);
  });
});
