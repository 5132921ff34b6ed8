import type { RequestUse } from '../domain/request/rate-limit.js';
import type { ApiErrorCode } from '../shared/errors.js';
import type { HeaderList } from './front.js';

/** A model by all the names clients may call it. */
export interface NamedModel {
  readonly name: string;
  readonly aliases: readonly string[];
}

/** Who a request comes from, as far as the data plane cares. */
export interface Principal {
  /** Id of the API key; {@link ANONYMOUS_ID} for a client without one. Stands in the access log and shares queues fairly. */
  readonly id: string;
  /** Replaces the routing profile's queue priority. */
  readonly priority: number | undefined;
  /** It was valid and is no more: what has not begun at an engine yet does not begin. */
  readonly revoked?: boolean;
  mayUse(model: NamedModel): boolean;
}

/** Why a request may not go on. */
export interface Refusal {
  readonly code: Extract<ApiErrorCode, 'invalid_api_key' | 'model_not_allowed' | 'rate_limit_exceeded'>;
  readonly message: string;
  /** Whole seconds, for `rate_limit_exceeded`. */
  readonly retryAfterSeconds?: number;
  /** Headers that tell the client its remaining room. */
  readonly headers?: HeaderList;
}

/** One granted request's hold on its key's limits. */
export interface Grant {
  /** Headers that tell the client its remaining room. */
  readonly headers: HeaderList;
  /** The request ended; called exactly once. */
  end(use: RequestUse): void;
}

/** The router's door to keys and limits. Synchronous: what it needs is in memory, and a request must not wait for a store. */
export interface Authoriser {
  /**
   * Judges the credential, before any of the body is read. Undefined: the client sent none; empty: it sent something
   * that cannot be one, such as two that differ.
   */
  authenticate(credential: string | undefined): Principal | Refusal;
  /** Takes one request and its estimated tokens out of the principal's limits. */
  grant(principal: Principal, estimatedTokens: number): Grant | Refusal;
}

export const isRefusal = (answer: Principal | Grant | Refusal): answer is Refusal => 'code' in answer;

/** Id of everybody who comes without a key. */
export const ANONYMOUS_ID = 'anonymous';

/** A client without a key, where none is needed. */
export const ANONYMOUS: Principal = { id: ANONYMOUS_ID, priority: undefined, mayUse: () => true };

/** Hold on nothing: for those without limits. */
export const FREE: Grant = { headers: [], end: () => undefined };

/** The same for every credential that is not one: what is wrong with it is nobody's business but its owner's. */
export const WRONG_CREDENTIAL: Refusal = {
  code: 'invalid_api_key',
  message: 'a valid API key is needed: send it as Authorization: Bearer KEY or as x-api-key: KEY',
};

/** For gateways without keys: everybody may do everything. */
export const allowAll: Authoriser = {
  authenticate: () => ANONYMOUS,
  grant: () => FREE,
};

/** The key a log line names; undefined for a client without one. */
export const keyOf = ({ id }: Principal): string | undefined => (id === ANONYMOUS_ID ? undefined : id);

/** Token under which the authoriser is injected. */
export const AUTHORISER = Symbol('Authoriser');
