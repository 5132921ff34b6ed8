import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { hasEscapedLetter } from './escaped-letter.js';

const find = (text: string): boolean => {
  // In the middle of a larger buffer, as events lie in a read.
  const bytes = Buffer.from(`\\u0061${text}\\u0061`);
  return hasEscapedLetter(bytes, 6, bytes.length - 6);
};

describe('hasEscapedLetter', () => {
  it.each([
    ['', false],
    ['"usage"', false],
    ['"us\\u0061ge"', true],
    ['"\\u0075sage"', true],
    ['"usag\\u0065', true],
    ['\\u0041', true],
    ['\\u00e9 and \\u003c and \\u000a', false],
    ['\\u0430', false],
    ['\\u006', false],
  ])('%j: %s', (text, expected) => expect(find(text)).toBe(expected));

  it('agrees with an expression at any place', () => {
    const piece = fc.constantFrom(
      '\\u00',
      '\\u006',
      '\\u0061',
      '\\',
      'u',
      '0',
      '4',
      'a',
      '"',
      'usage',
      '\\u00e9',
    );
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 12 }), (pieces) => {
        const text = pieces.join('');
        expect(find(text)).toBe(/\\u00[4-7][^]/.test(text));
      }),
      { seed: 7, numRuns: 2000 },
    );
  });
});
