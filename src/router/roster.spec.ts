import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Roster, type Enlisted } from './roster.js';

const member = (): Enlisted => ({ rosterPlace: -1 });

describe('Roster', () => {
  it('holds what a Set would hold, whatever comes and goes', () => {
    const step = fc.record({ comes: fc.boolean(), pick: fc.nat(100) });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
        const roster = new Roster<Enlisted>();
        const set = new Set<Enlisted>();
        for (const { comes, pick } of steps) {
          const chosen = [...set][pick % Math.max(1, set.size)];
          if (comes || chosen === undefined) {
            const newcomer = member();
            roster.add(newcomer);
            set.add(newcomer);
          } else {
            expect(roster.delete(chosen)).toBe(true);
            expect(roster.delete(chosen)).toBe(false);
            set.delete(chosen);
          }
          expect(roster.size).toBe(set.size);
          expect(new Set(roster)).toEqual(set);
        }
      }),
    );
  });

  it('passes over who leaves while it is gone through, and over who comes', () => {
    const roster = new Roster<Enlisted>();
    const [first, second, third] = [member(), member(), member()];
    for (const one of [first, second, third]) roster.add(one);
    const seen: Enlisted[] = [];
    for (const one of roster) {
      seen.push(one);
      roster.delete(one);
      roster.delete(second);
      roster.add(member());
    }
    expect(seen).toEqual([first, third]);
    expect(roster.size).toBe(2);
  });

  it('refuses a member of any roster, and takes it again once it has left', () => {
    const [one, other] = [new Roster<Enlisted>(), new Roster<Enlisted>()];
    const someone = member();
    one.add(someone);
    expect(() => one.add(someone)).toThrow(RangeError);
    expect(() => other.add(someone)).toThrow(RangeError);
    expect(other.delete(someone)).toBe(false);
    expect(one.delete(someone)).toBe(true);
    other.add(someone);
    expect([...other]).toEqual([someone]);
  });
});
