import { describe, expect, it } from 'vitest';
import { keep } from './keep.js';

const copy = <T>(value: T): T => structuredClone(value);

describe('what is told again', () => {
  const known = {
    sequence: 1,
    gpus: [
      { uuid: 'g0', health: { state: 'healthy' } },
      { uuid: 'g1', health: { state: 'healthy' } },
    ],
    ports: [1, 2],
    none: undefined,
  };

  it('is the one that is known, when nothing differs', () => {
    expect(keep(known, copy(known))).toBe(known);
  });

  it('keeps every part that did not change, and says what did', () => {
    const fresh = { ...copy(known), sequence: 2 };
    fresh.gpus[1] = { uuid: 'g1', health: { state: 'excluded' } };
    const untouched = copy(fresh);
    const shared = keep(known, fresh);
    expect(shared).toEqual(untouched);
    expect(fresh).toEqual(untouched);
    expect(shared.gpus[0]).toBe(known.gpus[0]);
    expect(shared.gpus[1]).not.toBe(known.gpus[1]);
    expect(shared.ports).toBe(known.ports);
  });

  it.each([
    ['a field less', { sequence: 1 }],
    ['a field more', { ...known, more: 1 }],
    [
      'another field in place of one that is undefined',
      { sequence: 1, gpus: [], ports: [], other: undefined },
    ],
    ['a list that is shorter', { ...known, ports: [1] }],
    ['a list that is longer', { ...known, ports: [1, 2, 3] }],
    ['a list in place of fields', [1]],
    ['nothing', undefined],
    ['null', null],
    ['a text', 'text'],
  ])('%s is a difference', (_, fresh) => {
    expect(keep<unknown>(known, fresh)).toEqual(fresh);
    expect(keep<unknown>(known, fresh)).not.toBe(known);
  });

  it('nothing of the message is kept, only copies', () => {
    const kept = keep(undefined, known);
    expect(kept).toEqual(known);
    expect(kept).not.toBe(known);
    expect(kept.gpus).not.toBe(known.gpus);
    expect(kept.gpus[0]).not.toBe(known.gpus[0]);
  });

  it('a list where fields were is another', () => {
    expect(keep<unknown>([1], { 0: 1 })).toEqual({ 0: 1 });
    expect(keep<unknown>({ 0: 1 }, [1])).toEqual([1]);
  });
});
