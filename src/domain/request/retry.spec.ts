import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { RetryBudget } from './retry-budget.js';
import { MAX_TIMEOUT_RETRY_TOKENS, clientShouldNotRetry, costsBudget, decideRetry } from './retry.js';
import type { AttemptFailure, RetryState } from './retry.js';

const FRESH: RetryState = {
  answerCommitted: false,
  attempts: 1,
  maxAttempts: 3,
  freshSocketTried: false,
  retriesOfStartedWork: 0,
  endpointsLeft: 2,
  budgetLeft: true,
  promptTokens: 100,
};

const status = (code: number): AttemptFailure => ({ kind: 'status', status: code });

const FAILURES: [AttemptFailure, before: string, blame: string][] = [
  [{ kind: 'connect_refused' }, 'retry_elsewhere:connect_refused', 'fault'],
  [{ kind: 'connect_timeout' }, 'retry_elsewhere:connect_timeout', 'fault'],
  [{ kind: 'connect_failed' }, 'retry_elsewhere:connect_failed', 'fault'],
  [{ kind: 'reset_before_response', reusedSocket: true }, 'retry_fresh_socket:stale_socket', 'none'],
  [{ kind: 'reset_before_response', reusedSocket: false }, 'retry_elsewhere:reset_before_response', 'fault'],
  [{ kind: 'reset_in_response' }, 'retry_elsewhere:reset_before_answer', 'fault'],
  [{ kind: 'protocol_error' }, 'retry_elsewhere:protocol_error', 'fault'],
  [{ kind: 'redirect' }, 'give_up:not_retryable', 'fault'],
  [{ kind: 'first_token_timeout' }, 'retry_elsewhere:first_token_timeout', 'first_token_timeout'],
  [{ kind: 'idle_timeout' }, 'give_up:not_retryable', 'fault'],
  [{ kind: 'total_timeout' }, 'give_up:deadline', 'none'],
  [status(400), 'relay:not_retryable', 'none'],
  [status(401), 'relay:not_retryable', 'none'],
  [status(404), 'relay:not_retryable', 'none'],
  [status(422), 'relay:not_retryable', 'none'],
  [status(424), 'relay:not_retryable', 'none'],
  [status(429), 'retry_elsewhere:engine_busy', 'busy'],
  [status(500), 'retry_elsewhere:engine_error', 'fault'],
  [status(501), 'relay:not_retryable', 'none'],
  [status(502), 'retry_elsewhere:bad_gateway', 'fault'],
  [status(503), 'retry_elsewhere:engine_busy', 'busy'],
  [status(504), 'retry_elsewhere:bad_gateway', 'fault'],
  [status(529), 'retry_elsewhere:engine_busy', 'busy'],
  [{ kind: 'error_event', status: 503 }, 'retry_elsewhere:engine_busy', 'busy'],
  [{ kind: 'error_event', status: 400 }, 'relay:not_retryable', 'none'],
  [{ kind: 'error_event', status: undefined }, 'retry_elsewhere:engine_error', 'fault'],
  [{ kind: 'client_closed' }, 'give_up:client_closed', 'none'],
  [{ kind: 'shutting_down' }, 'give_up:shutting_down', 'none'],
];

function label(failure: AttemptFailure, state: RetryState): string {
  const decision = decideRetry(failure, state);
  return `${decision.action}:${'reason' in decision ? decision.reason : decision.because}`;
}

describe('decideRetry before commit', () => {
  it.each(FAILURES)('%j -> %s, blame %s', (failure, expected, blame) => {
    expect(label(failure, FRESH)).toBe(expected);
    expect(decideRetry(failure, FRESH).blame).toBe(blame);
  });

  it('a reset on a fresh socket after a stale one is a real fault', () => {
    const failure: AttemptFailure = { kind: 'reset_before_response', reusedSocket: true };
    expect(label(failure, { ...FRESH, freshSocketTried: true })).toBe(
      'retry_elsewhere:reset_before_response',
    );
  });

  it('a 500 is tried once elsewhere, then the engine is believed', () => {
    const again = { ...FRESH, attempts: 2, retriesOfStartedWork: 1 };
    expect(label(status(500), again)).toBe('relay:not_worth_repeating');
  });

  /** No byte received was taken as proof that the engine had not begun; a prompt that kills engines went round. */
  it('work that may have begun is repeated once, refused work as often as attempts allow', () => {
    const again = { ...FRESH, attempts: 2, retriesOfStartedWork: 1 };
    const reset: AttemptFailure = { kind: 'reset_before_response', reusedSocket: false };
    expect(label(reset, again)).toBe('give_up:not_worth_repeating');
    expect(label({ kind: 'reset_in_response' }, again)).toBe('give_up:not_worth_repeating');
    expect(label({ kind: 'connect_refused' }, again)).toBe('retry_elsewhere:connect_refused');
    expect(label(status(503), again)).toBe('retry_elsewhere:engine_busy');
  });

  /** Two broken replicas of two: the limit on started work hid that nobody was left, and clients came back for more. */
  it('says that all were tried whichever limit is reached with it', () => {
    const nobodyLeft = { ...FRESH, attempts: 2, retriesOfStartedWork: 1, endpointsLeft: 0 };
    expect(label(status(500), nobodyLeft)).toBe('relay:all_tried');
    expect(label({ kind: 'first_token_timeout' }, nobodyLeft)).toBe('give_up:all_tried');
    expect(label(status(400), nobodyLeft)).toBe('relay:not_retryable');
  });

  it('gives up, or relays what the engine said, at each bound', () => {
    const bounds: [Partial<RetryState>, string][] = [
      [{ endpointsLeft: 0 }, 'all_tried'],
      [{ attempts: 3 }, 'attempts_exhausted'],
    ];
    for (const [change, because] of bounds) {
      expect(label({ kind: 'connect_refused' }, { ...FRESH, ...change })).toBe(`give_up:${because}`);
      expect(label(status(503), { ...FRESH, ...change })).toBe(`relay:${because}`);
    }
    const spent = { ...FRESH, budgetLeft: false };
    expect(label({ kind: 'connect_timeout' }, spent)).toBe('give_up:budget_exhausted');
    expect(label({ kind: 'first_token_timeout' }, spent)).toBe('give_up:budget_exhausted');
    expect(label(status(503), spent)).toBe('relay:budget_exhausted');
  });

  /**
   * Eight clients were streaming from two engines when one was killed. It dropped its requests all at once, more than
   * the budget's floor, and the rest got 502 although the other engine stood idle.
   */
  it('moves every request of an engine that died, whatever is left of the budget', () => {
    const spent = { ...FRESH, budgetLeft: false };
    expect(label({ kind: 'connect_refused' }, spent)).toBe('retry_elsewhere:connect_refused');
    expect(label({ kind: 'connect_failed' }, spent)).toBe('retry_elsewhere:connect_failed');
    expect(label({ kind: 'reset_before_response', reusedSocket: false }, spent)).toBe(
      'retry_elsewhere:reset_before_response',
    );
    expect(label({ kind: 'reset_in_response' }, spent)).toBe('retry_elsewhere:reset_before_answer');
  });

  /**
   * A fixed first-token wait gave up on an engine in the middle of a long prefill and sent the same prompt to the
   * next, which started again: the fleet burned prefill and nobody answered.
   */
  it('a first-token timeout is followed by one attempt at most, and by none for a huge prompt', () => {
    const failure: AttemptFailure = { kind: 'first_token_timeout' };
    expect(label(failure, FRESH)).toBe('retry_elsewhere:first_token_timeout');
    expect(label(failure, { ...FRESH, attempts: 2, retriesOfStartedWork: 1 })).toBe(
      'give_up:not_worth_repeating',
    );
    const huge = { ...FRESH, promptTokens: MAX_TIMEOUT_RETRY_TOKENS + 1 };
    expect(label(failure, huge)).toBe('give_up:not_worth_repeating');
  });

  /**
   * A prompt that breaks every engine got two of three replicas, and then the client's SDK sent it three times more,
   * since nothing told it that this was on purpose.
   */
  it('tells the client not to retry when all were asked, or nobody else is asked on purpose', () => {
    const refused: AttemptFailure = { kind: 'connect_refused' };
    const nobodyLeft = { endpointsLeft: 0 };
    const repeated = { attempts: 2, retriesOfStartedWork: 1 };
    const cases: [AttemptFailure, Partial<RetryState>, engines: number, boolean][] = [
      [refused, nobodyLeft, 1, true],
      [status(503), nobodyLeft, 2, true],
      [status(503), nobodyLeft, 1, false],
      [status(500), repeated, 2, true],
      [{ kind: 'first_token_timeout' }, repeated, 2, true],
      [{ kind: 'first_token_timeout' }, { promptTokens: MAX_TIMEOUT_RETRY_TOKENS + 1 }, 1, true],
      [{ kind: 'redirect' }, {}, 1, true],
      [status(501), {}, 1, true],
      [refused, { attempts: 3 }, 3, false],
      [status(503), { budgetLeft: false }, 1, false],
      [refused, {}, 1, false],
      [status(400), {}, 1, false],
      [{ kind: 'total_timeout' }, {}, 1, false],
    ];
    for (const [failure, change, engines, expected] of cases) {
      const decision = decideRetry(failure, { ...FRESH, ...change });
      expect(clientShouldNotRetry(decision, failure, engines), JSON.stringify([failure, change])).toBe(
        expected,
      );
    }
  });
});

describe('decideRetry, always', () => {
  const states = fc.record({
    answerCommitted: fc.boolean(),
    attempts: fc.integer({ min: 1, max: 5 }),
    maxAttempts: fc.integer({ min: 1, max: 5 }),
    freshSocketTried: fc.boolean(),
    retriesOfStartedWork: fc.nat(2),
    endpointsLeft: fc.nat(3),
    budgetLeft: fc.boolean(),
    promptTokens: fc.nat(100_000),
  });
  const failures = fc.constantFrom(...FAILURES.map(([failure]) => failure));

  it('never retries after commit and never relays what would be a second answer', () => {
    fc.assert(
      fc.property(failures, states, (failure, state) => {
        const { action } = decideRetry(failure, { ...state, answerCommitted: true });
        expect(action).toBe('give_up');
      }),
    );
  });

  it('retries elsewhere only within attempts, budget and endpoints left', () => {
    fc.assert(
      fc.property(failures, states, (failure, state) => {
        const decision = decideRetry(failure, state);
        if (decision.action !== 'retry_elsewhere') return;
        expect(state.attempts).toBeLessThan(state.maxAttempts);
        expect(state.endpointsLeft).toBeGreaterThan(0);
        expect(state.budgetLeft || !costsBudget(decision.reason)).toBe(true);
      }),
    );
  });

  it('ends: no sequence of failures makes more attempts than allowed, plus one fresh socket each', () => {
    fc.assert(
      fc.property(fc.array(failures, { minLength: 20, maxLength: 20 }), (sequence) => {
        let state: RetryState = { ...FRESH, endpointsLeft: 10 };
        let sent = 1;
        for (const failure of sequence) {
          const decision = decideRetry(failure, state);
          if (decision.action === 'retry_fresh_socket') state = { ...state, freshSocketTried: true };
          else if (decision.action === 'retry_elsewhere') {
            state = { ...state, attempts: state.attempts + 1, freshSocketTried: false };
          } else break;
          sent += 1;
        }
        expect(sent).toBeLessThanOrEqual(FRESH.maxAttempts * 2);
      }),
    );
  });
});

describe('RetryBudget', () => {
  it('grants 20 % of active requests, and three on a quiet day', () => {
    const budget = new RetryBudget();
    const passes = Array.from({ length: 5 }, () => budget.begin());
    expect(passes.map((pass) => pass.takeRetry())).toEqual([true, true, true, false, false]);
    const more = Array.from({ length: 95 }, () => budget.begin());
    expect(more.filter((pass) => pass.takeRetry())).toHaveLength(17);
    for (const pass of [...passes, ...more]) {
      pass.end();
      pass.end();
      expect(pass.takeRetry()).toBe(false);
    }
    expect([budget.active, budget.retrying]).toEqual([0, 0]);
  });

  it('never counts below zero, whatever the order', () => {
    fc.assert(
      fc.property(fc.array(fc.tuple(fc.nat(9), fc.boolean()), { maxLength: 200 }), (steps) => {
        const budget = new RetryBudget();
        const passes = Array.from({ length: 10 }, () => budget.begin());
        for (const [at, end] of steps) {
          if (end) passes[at]!.end();
          else passes[at]!.takeRetry();
          expect(budget.retrying).toBeGreaterThanOrEqual(0);
          expect(budget.active).toBeGreaterThanOrEqual(0);
        }
        for (const pass of passes) pass.end();
        expect([budget.active, budget.retrying]).toEqual([0, 0]);
      }),
    );
  });
});
