import type { ApiErrorCode } from '../shared/errors.js';
import type { ExchangeFacts } from './exchange-account.js';

/** How a request ended. */
export type Outcome = ApiErrorCode | 'ok' | 'engine_error';

type UseFacts = Pick<
  ExchangeFacts,
  'winner' | 'usage' | 'promptTokens' | 'tokenEvents' | 'attempts' | 'route' | 'model' | 'answer'
>;

/**
 * Tokens a request is charged for. What the engine reported is believed; an answer that was cut off seldom has a report,
 * and then the events the client got stand for output tokens and the estimate for the prompt: leaving a stream just
 * before its end must not make it free.
 */
export function usedTokens(facts: UseFacts, outcome: Outcome): number {
  const { winner, usage, promptTokens = 0 } = facts;
  if (winner === undefined) {
    // The client left while an engine was working for it; of what failed by itself nothing was delivered.
    return outcome === 'client_closed' && (facts.attempts ?? 0) > 0 ? promptTokens : 0;
  }
  const reported = usage?.completionTokens;
  // In the middle of an answer a report is behind what was delivered: Anthropic's first one says 1.
  const output =
    outcome === 'ok' && reported !== undefined ? reported : Math.max(reported ?? 0, deliveredTokens(facts));
  return (usage?.promptTokens ?? promptTokens) + output;
}

/** Output tokens the client got, as far as that can be seen from outside. */
function deliveredTokens({ answer, route, model, tokenEvents }: UseFacts): number {
  if (answer.streamed || model === undefined || !route.generates || !route.reportsUsage) return tokenEvents;
  return Math.ceil(answer.bytes / model.sizes.bytesPerToken);
}
