import { createHash } from 'node:crypto';
import { mkdir, mkdtemp, readdir, readFile, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Bigram, LOG_NEVER } from './bigram.js';
import { trainBpe } from './bpe.js';
import { constantTensor, encodeGguf, halfTensor, toHalf } from './gguf-writer.js';
import { buildTinyModel, ensureTinyModel, TINY_MODEL_FILE_NAME, writeTinyModel } from './tiny-model.js';

/** Of `TINY_MODEL_FILE_NAME`'s bytes: when this changes, the number in the name has to grow. */
const TINY_MODEL_SHA256 = '9fd7045570d7104648975694e5596844ae23502b391e9a51318f58fcbafbb3d9';

let directory: string;
beforeAll(async () => {
  directory = await mkdtemp(path.join(tmpdir(), 'llmgw-tiny-'));
});
afterAll(() => rm(directory, { recursive: true }));

describe('the tiny model', () => {
  it('is the same bytes every time, and small', () => {
    const bytes = buildTinyModel();
    expect(bytes.length).toBeLessThan(2_000_000);
    expect([TINY_MODEL_FILE_NAME, createHash('sha256').update(bytes).digest('hex')]).toEqual([
      'llmgw-tiny-1.gguf',
      TINY_MODEL_SHA256,
    ]);
  });

  it('is written whole, once, and leaves nothing else behind', async () => {
    const folder = path.join(directory, 'models');
    const [file, again] = await Promise.all([ensureTinyModel(folder), ensureTinyModel(folder)]);
    expect(again).toBe(file);
    expect(await readdir(folder)).toEqual([TINY_MODEL_FILE_NAME]);
    expect(await readFile(file)).toEqual(buildTinyModel());
    const { mtimeMs } = await stat(file);
    await ensureTinyModel(folder);
    expect((await stat(file)).mtimeMs).toBe(mtimeMs);
  });

  it('leaves no partial file when it cannot be put in place', async () => {
    const folder = path.join(directory, 'taken');
    await mkdir(path.join(folder, 'model.gguf', 'in-the-way'), { recursive: true });
    await expect(writeTinyModel(path.join(folder, 'model.gguf'))).rejects.toThrow();
    expect(await readdir(folder)).toEqual(['model.gguf']);
  });
});

describe('trainBpe', () => {
  it('learns frequent pairs first and encodes what it learnt from', () => {
    const bpe = trainBpe(['the cat the hat the'], 10);
    expect(bpe.merges.slice(0, 2)).toEqual(['h e', 't he']);
    expect(bpe.tokens.slice(256)).toContain('Ġthe');
    expect(
      bpe
        .encode('the cat')
        .map((id) => bpe.tokens[id])
        .join(''),
    ).toBe('theĠcat');
    expect(() => bpe.encode('dog')).toThrow('not in the training texts');
  });

  it('has a printable character for every byte, each its own', () => {
    const { tokens } = trainBpe([], 5);
    expect(new Set(tokens).size).toBe(256);
    expect(tokens.every((token) => !/\s/.test(token))).toBe(true);
  });
});

describe('Bigram', () => {
  const bigram = new Bigram({
    vocabularySize: 6,
    sequences: [
      [0, 1, 2],
      [0, 3, 2],
    ],
    sentenceEnd: 2,
    endOfText: 5,
    endProbability: 0.25,
  });

  it('gives probabilities that add up, for every token', () => {
    for (let token = 0; token < 6; token++) {
      const total = bigram.logProbabilities(token).reduce((sum, log) => sum + Math.exp(log), 0);
      expect(total).toBeCloseTo(1, 6);
    }
  });

  it('follows what it saw, starts anew after what it never saw, ends only after a sentence', () => {
    expect(bigram.logProbabilities(0)[1]).toBeCloseTo(Math.log(0.5));
    expect(bigram.logProbabilities(4)[0]).toBeCloseTo(0);
    expect(bigram.logProbabilities(2)[5]).toBeCloseTo(Math.log(0.25));
    expect(bigram.logProbabilities(0)[5]).toBe(LOG_NEVER);
  });
});

describe('the GGUF writer', () => {
  it('rounds to half precision as IEEE 754 says', () => {
    const cases: [number, number][] = [
      [0, 0x0000],
      [-0, 0x8000],
      [1, 0x3c00],
      [-2, 0xc000],
      [65504, 0x7bff],
      [65520, 0x7c00],
      [1e6, 0x7c00],
      [2 ** -14, 0x0400],
      [2 ** -24, 0x0001],
      [2 ** -26, 0x0000],
      [1 + 2 ** -11, 0x3c00],
      [1 + 3 * 2 ** -11, 0x3c02],
      [1 / 3, 0x3555],
    ];
    for (const [value, bits] of cases) expect(toHalf(value), String(value)).toBe(bits);
  });

  it('aligns tensors and names them in the directory', () => {
    const bytes = encodeGguf(new Map([['general.name', { type: 'string', value: 'x' }]]), [
      constantTensor('a', [3], 1),
      halfTensor('b', [2, 2], (column, row) => column + 10 * row),
    ]);
    expect(bytes.toString('latin1', 0, 4)).toBe('GGUF');
    expect(bytes.readUInt32LE(4)).toBe(3);
    expect(bytes.readBigUInt64LE(8)).toBe(2n);
    expect(bytes.length % 32).toBe(0);
    // Two tensors of at most 32 bytes each, padded: the first starts 64 bytes before the end.
    const start = bytes.length - 64;
    expect(bytes.readFloatLE(start + 8)).toBe(1);
    expect(bytes.readUInt16LE(start + 32 + 6)).toBe(toHalf(11));
  });
});
