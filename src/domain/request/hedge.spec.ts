import { describe, expect, it } from 'vitest';
import { HedgeBudget, decideHedge } from './hedge.js';
import type { HedgeState } from './hedge.js';

const ON = { afterMs: 500, budgetShare: 0.02 };
const WAITING: HedgeState = { elapsedMs: 600, answerCommitted: false, running: 1, endpointsLeft: 1 };

describe('decideHedge', () => {
  it.each([
    [{ ...ON, afterMs: 0 }, WAITING, { hedge: false, because: 'off' }],
    [ON, { ...WAITING, answerCommitted: true }, { hedge: false, because: 'committed' }],
    [ON, { ...WAITING, running: 2 }, { hedge: false, because: 'already_hedged' }],
    [ON, { ...WAITING, elapsedMs: 200 }, { hedge: false, because: 'too_early', againInMs: 300 }],
    [ON, { ...WAITING, endpointsLeft: 0 }, { hedge: false, because: 'no_endpoint' }],
    [ON, WAITING, { hedge: true }],
  ])('%j %j -> %j', (policy, state, expected) => {
    expect(decideHedge(policy, state, new HedgeBudget())).toEqual(expected);
  });

  it('spends nothing on a refusal', () => {
    const budget = new HedgeBudget();
    decideHedge(ON, { ...WAITING, elapsedMs: 0 }, budget);
    expect(decideHedge(ON, WAITING, budget)).toEqual({ hedge: true });
    expect(decideHedge(ON, WAITING, budget)).toEqual({ hedge: false, because: 'budget_exhausted' });
  });
});

describe('HedgeBudget', () => {
  it('stays at 2 % even when everything is slow', () => {
    const budget = new HedgeBudget();
    let hedges = 0;
    for (let i = 0; i < 10_000; i++) {
      budget.earn();
      if (budget.take()) hedges += 1;
    }
    expect(hedges).toBe(201);
  });

  it('saves up a bounded reserve', () => {
    const budget = new HedgeBudget();
    for (let i = 0; i < 100_000; i++) budget.earn();
    let hedges = 0;
    while (budget.take()) hedges += 1;
    expect(hedges).toBe(10);
  });
});
