import { describe, expect, it } from 'vitest';
import { BodyBudget, BodyBuffer } from './body-buffer.js';

const LIMIT = 1024 * 1024;

describe('a body whose length is not known', () => {
  // A body sent in chunks of one byte took hundreds of bytes of memory for each, and no limit saw them.
  it('keeps no small piece by itself once there are many of them', () => {
    const buffer = new BodyBuffer(LIMIT, new BodyBudget(), -1);
    const pieces = Array.from({ length: 40_000 }, (_, i) => Buffer.of(i % 251));
    for (const piece of pieces) expect(buffer.push(piece)).toBeUndefined();
    // What is overwritten here and still in the body was kept for one byte.
    for (const piece of pieces) piece[0] = 255;
    const bytes = buffer.take();
    expect(bytes.length).toBe(40_000);
    expect(bytes.filter((byte) => byte === 255).length).toBeLessThan(100);
    expect(bytes[39_999]).toBe(39_999 % 251);
  });

  it('has its bytes in order, whatever pieces they come in', () => {
    const buffer = new BodyBuffer(LIMIT, new BodyBudget(), -1);
    const pieces = Array.from({ length: 500 }, (_, i) =>
      Buffer.alloc([1, 3, 700, 2_000, 20_000][(i * i) % 5] ?? 1, i % 256),
    );
    const expected = Buffer.concat(pieces).subarray(0, LIMIT);
    for (const piece of pieces) if (buffer.push(piece) !== undefined) break;
    expect(buffer.take().equals(expected.subarray(0, buffer.length))).toBe(true);
  });

  it('gives back what it took of the budget', () => {
    const budget = new BodyBudget();
    const buffer = new BodyBuffer(LIMIT, budget, -1);
    for (let i = 0; i < 1_000; i++) buffer.push(Buffer.alloc(10));
    expect(budget.heldBytes).toBe(10_000);
    buffer.release();
    buffer.release();
    expect(budget.heldBytes).toBe(0);
  });
});
