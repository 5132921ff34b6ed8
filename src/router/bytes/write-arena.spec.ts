import { describe, expect, it } from 'vitest';

import { WriteArena } from './write-arena.js';

describe('WriteArena', () => {
  it('gives the same memory again unless it was kept', () => {
    const arena = new WriteArena();
    const first = arena.take(100);
    const again = arena.take(50);
    expect([again.buffer === first.buffer, again.byteOffset - first.byteOffset]).toEqual([true, 0]);
    arena.keep(50);
    expect(arena.take(10).byteOffset - first.byteOffset).toBe(50);
  });

  it('never gives kept memory away, however much is asked for', () => {
    const arena = new WriteArena();
    const kept: Buffer[] = [];
    for (let i = 0; i < 100; i++) {
      const length = i % 7 === 0 ? 300_000 : 9_000;
      kept.push(arena.take(length).fill(i));
      arena.keep(length);
    }
    expect(kept.every((bytes, i) => bytes.every((byte) => byte === i))).toBe(true);
    expect(kept.map((bytes) => bytes.length).slice(0, 2)).toEqual([300_000, 9_000]);
  });
});
