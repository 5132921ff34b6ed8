import { describe, expect, it } from 'vitest';
import { type RefusedAnswer, startRefusal } from './refusal.js';

describe('a refused command', () => {
  it.each<[string, RefusedAnswer, ReturnType<typeof startRefusal>]>([
    [
      'for the engine is a failure with its verdict',
      { verdict: 'notAllowed', message: 'no' },
      { verdict: 'notAllowed', message: 'no' },
    ],
    ['for its generation needs another one', { cause: 'oldGeneration' }, { verdict: 'unknown' }],
    [
      'for our term says nothing about the engine',
      { cause: 'staleTerm', message: 'term 3 is over' },
      undefined,
    ],
    ['for our term with a verdict still says nothing', { cause: 'staleTerm', verdict: 'crashed' }, undefined],
    ['without a reason, from an older agent, is none', { message: 'term 3 is over' }, undefined],
  ])('%s', (_, answer, expected) => {
    expect(startRefusal(answer)).toEqual(expected);
  });
});
