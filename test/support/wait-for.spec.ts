import { describe, expect, it } from 'vitest';
import { GivenUp, mustHold, waitFor } from './wait-for.js';

describe('waitFor', () => {
  it('gives the first truthy value', async () => {
    let calls = 0;
    expect(await waitFor(() => (++calls === 3 ? 'here' : undefined))).toBe('here');
    expect(calls).toBe(3);
  });

  it('names what it waited for and shows the last value', async () => {
    const wait = waitFor(() => 0, { deadlineMs: 5, what: 'a one' });
    await expect(wait).rejects.toThrow(/a one; last value: 0/);
  });

  it('treats a throwing condition as not yet and shows its error in the end', async () => {
    let calls = 0;
    const value = await waitFor(() => {
      if (++calls < 3) throw new Error('not yet');
      return calls;
    });
    expect(value).toBe(3);
    const failing = waitFor(
      () => {
        throw new Error('never');
      },
      { deadlineMs: 5 },
    );
    await expect(failing).rejects.toThrow(/never/);
  });

  it('ends at once when its condition gives up, or when what must hold at every look does not', async () => {
    let looks = 0;
    const gaveUp = waitFor(() => {
      looks += 1;
      throw new GivenUp('it has ended');
    });
    await expect(gaveUp).rejects.toThrow('it has ended');
    const broken = waitFor(async () => {
      looks += 1;
      await mustHold(() => expect(looks).toBeLessThan(3));
      return looks > 5;
    });
    await expect(broken).rejects.toThrow(/expected 3 to be less than 3/);
  });
});
