import { describe, expect, it } from 'vitest';
import { errorChain } from './errors.js';

describe('the messages of an error and its causes', () => {
  it('are told outermost first', () => {
    expect(errorChain(new Error('a', { cause: new Error('b', { cause: 'c' }) }))).toEqual(['a', 'b', 'c']);
  });

  it('say nothing twice: what an error took from its cause stands in it already', () => {
    const cause = new Error('database disk image is malformed');
    expect(errorChain(new Error(`the backup is damaged: ${cause.message}`, { cause }))).toEqual([
      'the backup is damaged: database disk image is malformed',
    ]);
    expect(errorChain(new Error('same', { cause: new Error('same', { cause: 'deeper' }) }))).toEqual([
      'same',
      'deeper',
    ]);
  });

  it('end, also where causes form a ring', () => {
    const error = new Error('one');
    error.cause = new Error('two', { cause: error });
    expect(errorChain(error)).toHaveLength(8);
  });
});
