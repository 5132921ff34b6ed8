/** What is stored of credentials. Never a secret: only its hash. */

/** What was done to a credential and by whom; times are ISO 8601. */
interface CredentialRecord {
  readonly id: string;
  /** For people; need not be unique, so that a key can be replaced by one of the same name. */
  readonly name: string;
  /** SHA-256 of the secret, hexadecimal. */
  readonly hash: string;
  readonly createdAt: string;
  readonly createdBy: string;
  readonly expiresAt?: string;
  readonly revokedAt?: string;
  readonly revokedBy?: string;
}

/** An API key of the client API. */
export interface ApiKeyRecord extends CredentialRecord {
  /** Names of models, also with `*`; empty = every model. */
  readonly models: readonly string[];
  readonly requestsPerMinute?: number;
  readonly tokensPerMinute?: number;
  readonly maxConcurrent?: number;
  readonly priority?: number;
  /** Of a revoked one: its last use, if there was one between the server's start and the end of the key. */
  readonly lastUsedAt?: string;
}

export const TOKEN_KINDS = ['admin', 'join'] as const;
/** `admin`: for the admin API; `join`: for agents. */
export type TokenKind = (typeof TOKEN_KINDS)[number];

/** A token of the admin API, or one that agents join with. */
export interface TokenRecord extends CredentialRecord {
  readonly kind: TokenKind;
  /** Of `admin` tokens. */
  readonly role?: 'viewer' | 'operator' | 'admin';
}

export type CredentialState = 'active' | 'expired' | 'revoked';

/** Whether a credential may be used at this wall time. */
export function credentialState(record: CredentialRecord, wallMs: number): CredentialState {
  if (record.revokedAt !== undefined) return 'revoked';
  return record.expiresAt !== undefined && wallMs >= Date.parse(record.expiresAt) ? 'expired' : 'active';
}
