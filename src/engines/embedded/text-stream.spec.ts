import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { StopScanner, TokenDecoder } from './text-stream.js';

/** Tokens that are single bytes. */
const bytesToText = (tokens: readonly number[]) => Buffer.from(tokens).toString();

describe('TokenDecoder', () => {
  it('gives whole characters only, and all of them', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme' }), (text) => {
        const decoder = new TokenDecoder(bytesToText);
        let given = '';
        for (const byte of Buffer.from(text)) {
          given += decoder.add(byte);
          // Of a character half arrived nothing may be given, and what was given is never taken back.
          expect(text.startsWith(given)).toBe(true);
        }
        expect(given + decoder.flush()).toBe(text);
      }),
      // U+FFFD is a character like any other when the text itself has it.
      { examples: [['\uFFFD '], ['a\uFFFD'], ['\uFFFDé'], ['\uFFFD\uFFFD'], ['\uFFFD\u{1F600}\uFFFD']] },
    );
  });

  it('does not wait for ever for a character that never comes', () => {
    const decoder = new TokenDecoder(bytesToText);
    const parts = [0xff, 0xff, 0xff, 0xff, 0x41].map((byte) => decoder.add(byte));
    expect(parts.join('').endsWith('A')).toBe(true);
    const broken = new TokenDecoder(bytesToText);
    const emoji = [...Buffer.from('\u{1F600}')];
    expect([0xff, ...emoji].map((byte) => broken.add(byte))).toEqual(['', '', '', '\uFFFD', '\u{1F600}']);
    expect(new TokenDecoder(bytesToText).flush()).toBe('');
  });

  it('gives an unfinished character at the end as it is', () => {
    const decoder = new TokenDecoder(bytesToText);
    expect(decoder.add(0xe2)).toBe('');
    expect(decoder.flush()).toBe('\uFFFD');
  });
});

describe('StopScanner', () => {
  const scan = (stops: string[], pieces: string[]) => {
    const scanner = new StopScanner(stops);
    const parts = pieces.map((piece) => scanner.add(piece));
    return { parts, text: parts.join('') + scanner.flush(), stopped: scanner.stopped };
  };

  it('holds back what may become a stop string and gives it when it does not', () => {
    expect(scan(['END'], ['a E', 'N', 'x']).parts).toEqual(['a ', '', 'ENx']);
    expect(scan(['END'], ['a E', 'N']).text).toBe('a EN');
  });

  it('cuts before the earliest of several', () => {
    expect(scan(['two', 'one'], ['zero o', 'ne two'])).toMatchObject({ text: 'zero ', stopped: true });
  });

  it('agrees with a search in the whole text, however it is cut', () => {
    const letters = fc.string({ unit: fc.constantFrom('a', 'b', 'c'), maxLength: 4 });
    fc.assert(
      fc.property(
        fc.array(letters, { maxLength: 20 }),
        fc.array(letters, { maxLength: 4 }),
        (pieces, stopWords) => {
          const stops = stopWords.filter((stop) => stop !== '');
          const whole = pieces.join('');
          const places = stops.map((stop) => whole.indexOf(stop)).filter((place) => place >= 0);
          const result = scan(stops, pieces);
          expect(result.stopped).toBe(places.length > 0);
          // A stop that completes earlier may begin later than one still growing; the text never runs past the first begin seen.
          const expected = places.length === 0 ? whole : whole.slice(0, result.text.length);
          expect(result.text).toBe(expected);
          if (places.length > 0)
            expect(stops.some((stop) => whole.startsWith(stop, result.text.length))).toBe(true);
        },
      ),
    );
  });
});
