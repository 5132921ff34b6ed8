import { describe, expect, it } from 'vitest';
import { ABSENT_MS, FileSettle, SETTLE_MS } from './file-settle.js';

describe('a changed file', () => {
  it('is taken once it has not changed for a while', () => {
    const settle = new FileSettle('a');
    expect(settle.look('a', 0)).toEqual({ kind: 'same' });
    expect(settle.look('b', 10)).toEqual({ kind: 'wait', ms: SETTLE_MS });
    expect(settle.look('b', 10 + SETTLE_MS - 1)).toEqual({ kind: 'wait', ms: 1 });
    expect(settle.look('b', 10 + SETTLE_MS)).toEqual({ kind: 'take' });
    expect(settle.look('b', 20 + SETTLE_MS)).toEqual({ kind: 'same' });
  });

  it('is taken once after several saves in a row, the empty moment of each included', () => {
    const settle = new FileSettle('a');
    const contents = ['', 'b', '', 'c', undefined, 'd'];
    const kinds = contents.map((content, index) => settle.look(content, index * 30).kind);
    expect(new Set(kinds)).toEqual(new Set(['wait']));
    expect(settle.look('d', 5 * 30 + SETTLE_MS).kind).toBe('take');
  });

  it('that is what it was again is no change', () => {
    const settle = new FileSettle('a');
    expect(settle.look('half', 0).kind).toBe('wait');
    expect(settle.look('a', 100).kind).toBe('same');
    expect(settle.look('half', 200)).toEqual({ kind: 'wait', ms: SETTLE_MS });
  });

  // Refused while it was away for a moment, a file stayed refused although it was back as it had been.
  it('that was read by somebody else is compared with what was read', () => {
    const settle = new FileSettle('a');
    expect(settle.look(undefined, 0).kind).toBe('wait');
    settle.readElsewhere(undefined);
    expect(settle.look('a', 100)).toEqual({ kind: 'wait', ms: SETTLE_MS });
    expect(settle.look('a', 100 + SETTLE_MS).kind).toBe('take');
    settle.readElsewhere('b');
    expect(settle.look('b', 500).kind).toBe('same');
  });

  it('that stays away is taken for gone, once', () => {
    const settle = new FileSettle('a');
    expect(settle.look(undefined, 0)).toEqual({ kind: 'wait', ms: ABSENT_MS });
    expect(settle.look(undefined, ABSENT_MS).kind).toBe('take');
    expect(settle.look(undefined, ABSENT_MS + 1).kind).toBe('same');
    expect(settle.look('a', ABSENT_MS + 2).kind).toBe('wait');
  });
});
