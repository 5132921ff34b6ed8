import type { Clock } from '../shared/clock.js';
import type { AdminTokenConfig } from '../config/auth-config.js';
import type { ServerConfig } from '../config/server-config.js';
import type { StateStore } from '../store/ports.js';
import { credentialState, type TokenRecord } from './records.js';
import { secretHash } from './secrets.js';

/** An admin token that was recognised. */
export interface KnownToken {
  readonly name: string;
  readonly role: AdminTokenConfig['role'];
}

/** Tokens of the admin API, from the configuration and the store, and stored join tokens of agents; in memory. */
export class TokenRing {
  private configured: ReadonlyMap<string, KnownToken> = new Map();
  /** What `configured` was made from: a reload puts another list in its place. */
  private configuredFrom: readonly AdminTokenConfig[] = [];
  private readonly stored = new Map<string, TokenRecord>();
  private readonly byHash = new Map<string, TokenRecord>();

  constructor(
    store: Pick<StateStore, 'list'>,
    private readonly clock: Clock,
    /** The configuration in force, read anew each time. */
    private readonly config: Pick<ServerConfig, 'auth'>,
  ) {
    for (const { value } of store.list<TokenRecord>('tokens')) this.put(value);
  }

  /**
   * Whether callers of the admin API need a token: as soon as there is one, then whoever reaches the loopback listener
   * may no longer do everything. An expired one counts: time alone must not open a door.
   */
  get adminRequired(): boolean {
    if (this.fromConfiguration().size > 0) return true;
    for (const { kind } of this.stored.values()) if (kind === 'admin') return true;
    return false;
  }

  /** The admin token of an `Authorization: Bearer` header. */
  findAdmin(authorization: string | undefined): KnownToken | undefined {
    const token = /^Bearer +(\S{1,512})$/i.exec(authorization ?? '')?.[1];
    if (token === undefined) return undefined;
    const hash = secretHash(token);
    const configured = this.fromConfiguration().get(hash);
    if (configured !== undefined) return configured;
    const record = this.usable(hash, 'admin');
    return record?.role === undefined ? undefined : { name: record.name, role: record.role };
  }

  /** Whether an agent may join with this token. */
  acceptsJoin(token: string): boolean {
    return this.usable(secretHash(token), 'join') !== undefined;
  }

  /** Stored tokens that are not revoked. */
  records(): Iterable<TokenRecord> {
    return this.stored.values();
  }

  /** Tokens of the configuration file. */
  configuredTokens(): Iterable<KnownToken> {
    return this.fromConfiguration().values();
  }

  /** A record was stored: holds from now on. */
  put(record: TokenRecord): void {
    const before = this.stored.get(record.id);
    if (before !== undefined) this.byHash.delete(before.hash);
    this.stored.delete(record.id);
    if (record.revokedAt !== undefined) return;
    this.stored.set(record.id, record);
    this.byHash.set(record.hash, record);
  }

  private fromConfiguration(): ReadonlyMap<string, KnownToken> {
    const { tokens } = this.config.auth.admin;
    if (tokens !== this.configuredFrom) {
      this.configuredFrom = tokens;
      this.configured = new Map(
        tokens.map(({ name, role, hash }) => [hash.replace(/^sha256:/, ''), { name, role }]),
      );
    }
    return this.configured;
  }

  private usable(hash: string, kind: TokenRecord['kind']): TokenRecord | undefined {
    const record = this.byHash.get(hash);
    if (record?.kind !== kind) return undefined;
    return credentialState(record, this.clock.wallMs()) === 'active' ? record : undefined;
  }
}
