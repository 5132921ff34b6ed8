import { describe, expect, it } from 'vitest';

import { chunkedLength, writeChunkSize, writeCrLf, writeLastChunk } from './chunk-framing.js';

describe('chunk framing', () => {
  it.each([1, 9, 10, 15, 16, 255, 256, 4095, 65_535, 65_536, 1_048_575, 2 ** 31, 2 ** 40])(
    'writes the size %d as hexadecimal digits',
    (size) => {
      const target = Buffer.alloc(20, '.');
      const end = writeChunkSize(target, 1, size);
      const size16 = size.toString(16);
      expect(target.toString('latin1', 0, end + 1)).toBe(`.${size16}\r\n.`);
      expect(chunkedLength(size, false)).toBe(size16.length + 4 + size);
    },
  );

  it('has no chunk for nothing, which would end the body', () => {
    expect([chunkedLength(0, false), chunkedLength(0, true)]).toEqual([0, 5]);
  });

  it('ends the body', () => {
    const target = Buffer.alloc(10, '.');
    const end = writeLastChunk(target, writeCrLf(target, 0));
    expect([target.toString('latin1'), end]).toEqual(['\r\n0\r\n\r\n...', 7]);
  });
});
