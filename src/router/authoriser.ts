import type { ApiErrorCode } from '../shared/errors.js';
import type { HeaderList } from './front.js';

/** Who a request comes from, as far as the data plane cares. */
export interface Principal {
  /** Id of the API key; `anonymous` where keys are off. Stands in the access log and shares queues fairly. */
  readonly id: string;
  /** Replaces the routing profile's queue priority. */
  readonly priority?: number;
  mayUse(model: string): boolean;
}

/** Why a request may not go on. */
export interface Refusal {
  readonly code: Extract<ApiErrorCode, 'invalid_api_key' | 'model_not_allowed' | 'rate_limit_exceeded'>;
  readonly message: string;
  /** Whole seconds, for `rate_limit_exceeded`. */
  readonly retryAfterSeconds?: number;
}

/** One granted request's hold on its key's limits. */
export interface Grant {
  /** Headers that tell the client its remaining room. */
  readonly headers: HeaderList;
  /** The request ended; called exactly once. `tokens` really used, undefined when nothing reported them. */
  end(tokens: number | undefined): void;
}

/** The router's door to keys and limits. Synchronous: what it needs is in memory, and a request must not wait for a store. */
export interface Authoriser {
  /** Judges the credential, before any of the body is read. */
  authenticate(credential: string | undefined): Principal | Refusal;
  /** Takes one request and its estimated tokens out of the principal's limits. */
  grant(principal: Principal, model: string, estimatedTokens: number): Grant | Refusal;
}

export const isRefusal = (answer: Principal | Grant | Refusal): answer is Refusal => 'code' in answer;

const ANONYMOUS: Principal = { id: 'anonymous', mayUse: () => true };
const FREE: Grant = { headers: [], end: () => undefined };

/** For gateways without keys: everybody may do everything. */
export const allowAll: Authoriser = {
  authenticate: () => ANONYMOUS,
  grant: () => FREE,
};
