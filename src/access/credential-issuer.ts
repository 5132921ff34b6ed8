import { parseExpiry } from '../config/expiry.js';
import type { Clock } from '../shared/clock.js';
import { OperatorError } from '../shared/errors.js';
import { secretHash, type SecretKind, type SecretSource } from './secrets.js';

/** What every new credential has; `secret` is for its owner and goes nowhere else. */
export interface IssuedCredential {
  readonly secret: string;
  readonly record: {
    readonly id: string;
    readonly name: string;
    readonly hash: string;
    readonly createdAt: string;
    readonly createdBy: string;
    readonly expiresAt?: string;
  };
}

/** Makes new credentials. */
export class CredentialIssuer {
  constructor(
    private readonly clock: Clock,
    private readonly secrets: SecretSource,
  ) {}

  get nowText(): string {
    return this.text(this.clock.wallMs());
  }

  /** `expires` as an operator writes it. Throws `invalid_argument` for one that cannot be. */
  issue(kind: SecretKind, name: string, by: string, expires: string | undefined): IssuedCredential {
    const secret = this.secrets.secret(kind);
    const expiresAt = expires === undefined ? undefined : this.text(this.expiry(expires));
    return {
      secret,
      record: {
        id: this.secrets.id(kind === 'key' ? 'key' : 'tok'),
        name,
        hash: secretHash(secret),
        createdAt: this.nowText,
        createdBy: by,
        ...(expiresAt === undefined ? {} : { expiresAt }),
      },
    };
  }

  private expiry(expires: string): number {
    const parsed = parseExpiry(expires, this.clock.wallMs());
    if (parsed.ok) return parsed.value;
    throw new OperatorError('invalid_argument', `expires: ${parsed.problem}`, { field: 'expires' });
  }

  private text(wallMs: number): string {
    return new Date(wallMs).toISOString();
  }
}
