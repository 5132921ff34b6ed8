/** Keys of clients, tokens of operators and agents. See answers.ts for what holds of all these objects. */
import type { CredentialState, TokenKind } from '../../access/records.js';

/** `GET keys`; also the answer of `DELETE keys/{id}`. */
export interface KeyView {
  readonly id: string;
  readonly name: string;
  readonly state: CredentialState;
  /** Names of models, also with `*`; empty = every model. */
  readonly models: readonly string[];
  /** Limits; absent = none. */
  readonly requestsPerMinute?: number;
  readonly tokensPerMinute?: number;
  readonly maxConcurrent?: number;
  /** In the queue, in place of the routing profile's. */
  readonly priority?: number;
  readonly createdAt: string;
  readonly createdBy: string;
  readonly expiresAt?: string;
  readonly revokedAt?: string;
  readonly revokedBy?: string;
  /** Of a revoked one: its last use, if there was one between the server's start and the end of the key. */
  readonly lastUsedAt?: string;
  /** What it was used for since the server started; absent on a revoked one. */
  readonly use?: KeyUseView;
}

export interface KeyUseView {
  readonly lastUsedAt?: string;
  /** Requests that wait or run now. */
  readonly inflight: number;
  readonly requestsTotal: number;
  /** Turned away by a limit. */
  readonly refusedTotal: number;
  readonly tokensTotal: number;
}

/** Answer of `POST keys`. */
export interface CreatedKeyView extends KeyView {
  /** The key itself. It is shown here and never again: only its hash is kept. */
  readonly secret: string;
  /** Sentences for the operator. */
  readonly notes: readonly string[];
}

/** `GET tokens` */
export interface TokenView {
  readonly id: string;
  readonly name: string;
  /** `admin`: for the admin API; `join`: for agents. */
  readonly kind: TokenKind;
  /** Of `admin` tokens. */
  readonly role?: 'viewer' | 'operator' | 'admin';
  readonly state: CredentialState;
  /** Where it stands; one of the configuration file is changed there. */
  readonly source: 'store' | 'configuration';
  readonly createdAt?: string;
  readonly createdBy?: string;
  readonly expiresAt?: string;
  readonly revokedAt?: string;
  readonly revokedBy?: string;
}

/** Answer of `DELETE tokens/{id}`. */
export interface RevokedTokenView extends TokenView {
  /** Sentences for the operator. */
  readonly notes: readonly string[];
}

/** Answer of `POST tokens`. */
export interface CreatedTokenView extends TokenView {
  /** The token itself. It is shown here and never again: only its hash is kept. */
  readonly secret: string;
  /** For a configuration file, where the same token is to work elsewhere too. */
  readonly hash: string;
  /** Sentences for the operator. */
  readonly notes: readonly string[];
}
