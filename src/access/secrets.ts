import { hash, randomBytes } from 'node:crypto';

/** Random bytes of a secret; 256 bits, so that guessing is hopeless and a plain hash is enough. */
const SECRET_BYTES = 32;
/** Random bytes of an id. Ids are no secrets; there only must not be two alike. */
const ID_BYTES = 5;

/** Beginnings of secrets, by which people and scanners of repositories know them. */
export const SECRET_PREFIXES = {
  key: 'sk-llmgw-',
  admin: 'llmgw-admin-',
  join: 'llmgw-join-',
} as const;
export type SecretKind = keyof typeof SECRET_PREFIXES;

/** Makes ids and secrets; the one place where they come from. */
export interface SecretSource {
  secret(kind: SecretKind): string;
  id(prefix: string): string;
}

export const systemSecrets: SecretSource = {
  secret: (kind) => SECRET_PREFIXES[kind] + randomBytes(SECRET_BYTES).toString('base64url'),
  id: (prefix) => `${prefix}-${randomBytes(ID_BYTES).toString('hex')}`,
};

/**
 * What is stored of a secret, and what it is found by.
 *
 * SHA-256 once, without salt: what slow, salted hashes protect are passwords, which people choose and attackers can
 * guess. A secret of 256 random bits is in no table and cannot be guessed at any speed, and a request must not wait a
 * tenth of a second for its hash.
 *
 * Looking up by the hash also makes the comparison safe: it may take different time for different hashes, but nobody
 * can choose the hash of what he sends, so the time tells nothing about the secrets that are known.
 */
export function secretHash(secret: string): string {
  return hash('sha256', secret, 'hex');
}
