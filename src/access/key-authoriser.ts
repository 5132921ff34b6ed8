import {
  ANONYMOUS,
  FREE,
  WRONG_CREDENTIAL,
  type Authoriser,
  type Grant,
  type Principal,
  type Refusal,
} from '../router/authoriser.js';
import type { ServerConfig } from '../config/server-config.js';
import type { Clock } from '../shared/clock.js';
import { ApiKey } from './api-key.js';
import type { KeyRing } from './key-ring.js';
import { SECRET_PREFIXES } from './secrets.js';

/** Keys and their limits, as the router asks for them. */
export class KeyAuthoriser implements Authoriser {
  constructor(
    private readonly ring: KeyRing,
    private readonly clock: Clock,
    /** The configuration in force, read anew each time: whether clients without a key are sent away. */
    private readonly config: Pick<ServerConfig, 'auth'>,
  ) {}

  authenticate(credential: string | undefined): Principal | Refusal {
    const key = credential === undefined ? undefined : this.ring.find(credential);
    if (key !== undefined) {
      const wallMs = this.clock.wallMs();
      if (key.expired(wallMs)) return WRONG_CREDENTIAL;
      key.lastUsedWallMs = wallMs;
      return key;
    }
    // Clients must send something, so they send `none` or `EMPTY` where no key is needed. What has the form of one of
    // ours is no such placeholder but a revoked or mistyped key, and its owner should hear of it.
    const refused = this.config.auth.apiKeys.required || credential?.startsWith(SECRET_PREFIXES.key) === true;
    return refused ? WRONG_CREDENTIAL : ANONYMOUS;
  }

  grant(principal: Principal, estimatedTokens: number): Grant | Refusal {
    if (!(principal instanceof ApiKey)) return FREE;
    // Between a request's head and the end of its body a key may have been revoked.
    if (principal.revoked) return WRONG_CREDENTIAL;
    return principal.grant(estimatedTokens, this.monotonicMs);
  }

  private readonly monotonicMs = (): number => this.clock.monotonicMs();
}
