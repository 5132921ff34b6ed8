import { createHash, timingSafeEqual } from 'node:crypto';
import type { AdminTokenConfig } from '../config/server-config.js';
import type { Role } from './roles.js';

/** A token that was recognised. */
export interface KnownToken {
  readonly name: string;
  readonly role: Role;
}

/** The configured admin tokens. Only hashes are known here; a token is 256 random bits, so a plain hash is enough. */
export class AdminTokens {
  private readonly known: readonly (KnownToken & { readonly hash: Buffer })[];

  constructor(tokens: readonly AdminTokenConfig[]) {
    this.known = tokens.map(({ name, role, hash }) => ({
      name,
      role,
      hash: Buffer.from(hash.replace(/^sha256:/, ''), 'hex'),
    }));
  }

  /** False when no tokens are configured: then whoever reaches the loopback listener may do everything. */
  get required(): boolean {
    return this.known.length > 0;
  }

  /** The token of an `Authorization: Bearer` header. Every known one is compared, so the time tells nothing. */
  find(authorization: string | undefined): KnownToken | undefined {
    const token = /^Bearer +(\S{1,512})$/i.exec(authorization ?? '')?.[1];
    if (token === undefined) return undefined;
    const given = createHash('sha256').update(token).digest();
    let found: KnownToken | undefined;
    for (const one of this.known) {
      if (one.hash.length === given.length && timingSafeEqual(one.hash, given)) found = one;
    }
    return found;
  }
}
