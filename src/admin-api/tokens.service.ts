import { Inject, Injectable } from '@nestjs/common';
import type { CredentialIssuer } from '../access/credential-issuer.js';
import { ISSUER, TOKEN_RING } from '../access/ports.js';
import { credentialState, type TokenKind, type TokenRecord } from '../access/records.js';
import type { TokenRing } from '../access/token-ring.js';
import { CLOCK, type Clock } from '../shared/clock.js';
import { OperatorError } from '../shared/errors.js';
import { STATE_STORE, type StateStore } from '../store/ports.js';
import { AuditLog } from './audit-log.js';
import { findByPrefix } from './find.js';
import { surplusRevoked } from './revoked-records.js';
import type { Caller, Role } from './roles.js';
import type { CreatedTokenView, RevokedTokenView, TokenView } from './views/credentials.js';

/** Tokens that are not revoked. */
const TOKENS_MAX = 1_000;

/** Ids of tokens that stand in the configuration file. */
const CONFIGURED_PREFIX = 'config:';

/** What is asked for a new token. */
export interface TokenRequest {
  readonly name: string;
  readonly kind?: TokenKind;
  readonly role?: Role;
  readonly expires?: string;
}

/**
 * Tokens of operators and agents: made, listed, revoked. The first admin token closes the listener to everybody without
 * one, so no step is taken after which nobody could take the next.
 */
@Injectable()
export class TokensService {
  constructor(
    @Inject(STATE_STORE) private readonly store: StateStore,
    @Inject(TOKEN_RING) private readonly ring: TokenRing,
    @Inject(ISSUER) private readonly issuer: CredentialIssuer,
    @Inject(AuditLog) private readonly audit: AuditLog,
    @Inject(CLOCK) private readonly clock: Clock,
  ) {}

  /** Those of the configuration first, then oldest first; revoked ones too as long as they are kept. */
  list(): readonly TokenView[] {
    const stored = this.records()
      .toSorted((a, b) => (a.createdAt < b.createdAt ? -1 : 1))
      .map((record) => this.view(record));
    return [...this.configured(), ...stored];
  }

  create(caller: Caller, request: TokenRequest): CreatedTokenView {
    const { name, kind = 'admin', expires } = request;
    const asked = { caller, action: 'create token', target: name };
    const role = this.audit.attempt(asked, () => {
      this.refuseTooMany();
      return this.roleFor(kind, request.role);
    });
    const { secret, record: issued } = this.issuer.issue(kind, name, caller.name, expires);
    const record: TokenRecord = { ...issued, kind, ...(role === undefined ? {} : { role }) };
    const notes = this.notes(record);
    const detail = `${name}: ${role ?? kind}`;
    this.commit(record, { caller, action: 'create token', target: record.id, detail }, 'TokenCreated');
    return { ...this.view(record), secret, hash: `sha256:${record.hash}`, notes };
  }

  /** Holds for the next call, and for the next time an agent connects. Asking twice changes nothing. */
  revoke(caller: Caller, given: string): RevokedTokenView {
    this.audit.attempt({ caller, action: 'revoke token', target: given }, () => refuseConfigured(given));
    const record = findByPrefix('token', given, this.records(), ({ id }) => id);
    if (record.revokedAt !== undefined) return { ...this.view(record), notes: [] };
    const entry = { caller, action: 'revoke token', target: record.id, detail: record.name };
    this.audit.attempt(entry, () => this.refuseLockOut(record));
    const revoked = { ...record, revokedAt: this.issuer.nowText, revokedBy: caller.name };
    this.commit(revoked, entry, 'TokenRevoked');
    const open = record.kind === 'admin' && !this.ring.adminRequired;
    const notes = open ? ['it was the last one: the admin API takes calls without a token again'] : [];
    return { ...this.view(revoked), notes };
  }

  private refuseTooMany(): void {
    if (this.active().length < TOKENS_MAX) return;
    throw new OperatorError('refused', `there are ${TOKENS_MAX} tokens already`, {
      hint: 'revoke those nobody uses: llmgw ctl tokens list',
    });
  }

  private roleFor(kind: TokenKind, asked: Role | undefined): Role | undefined {
    if (kind === 'join') {
      if (asked === undefined) return undefined;
      throw new OperatorError('invalid_argument', 'role: join tokens have none', { field: 'role' });
    }
    const role = asked ?? 'viewer';
    if (role === 'admin' || this.ring.adminRequired) return role;
    throw new OperatorError('refused', `the first token must have the role admin, not ${role}`, {
      field: 'role',
      hint: 'from the first token on nobody without one gets in: make one with --role admin, then the others with it',
    });
  }

  private notes({ kind, role, expiresAt }: TokenRecord): readonly string[] {
    if (kind !== 'admin' || this.ring.adminRequired) return [];
    const closed = 'from now on every call of the admin API needs a token, also from this machine';
    return role === 'admin' && expiresAt !== undefined
      ? [
          closed,
          `make another one before ${expiresAt}, or put one into auth.admin.tokens: an expired token opens nothing`,
        ]
      : [closed];
  }

  /** Others would be left with a door that nobody can open. */
  private refuseLockOut(record: TokenRecord): void {
    if (record.kind !== 'admin' || record.role !== 'admin') return;
    for (const { role } of this.ring.configuredTokens()) if (role === 'admin') return;
    const others = this.active().filter(({ id, kind }) => kind === 'admin' && id !== record.id);
    const nowMs = this.clock.wallMs();
    const stillAdmin = others.some((one) => one.role === 'admin' && credentialState(one, nowMs) === 'active');
    if (stillAdmin || (others.length === 0 && !this.hasConfigured())) return;
    throw new OperatorError('refused', `${record.id} is the last token with the role admin`, {
      hint: 'make another one first, or revoke the others before it',
    });
  }

  private hasConfigured(): boolean {
    return this.configured().length > 0;
  }

  private commit(record: TokenRecord, entry: Parameters<AuditLog['commit']>[0], type: string): void {
    const ops = [
      { op: 'put', collection: 'tokens', key: record.id, value: record } as const,
      ...surplusRevoked('tokens', this.records(), record),
    ];
    this.audit.commit(entry, ops, {
      type,
      subject: { kind: 'token', id: record.id },
      reason: { code: 'requested', message: `${record.name}: ${entry.action} by ${entry.caller.name}` },
      actor: entry.caller.name,
    });
    this.ring.put(record);
  }

  private records(): readonly TokenRecord[] {
    return this.store.list<TokenRecord>('tokens').map(({ value }) => value);
  }

  private active(): readonly TokenRecord[] {
    return [...this.ring.records()];
  }

  private configured(): readonly TokenView[] {
    return [...this.ring.configuredTokens()].map(({ name, role }) => ({
      id: `${CONFIGURED_PREFIX}${name}`,
      name,
      kind: 'admin',
      role,
      state: 'active',
      source: 'configuration',
    }));
  }

  private view(record: TokenRecord): TokenView {
    const { hash: _, ...shown } = record;
    return { ...shown, state: credentialState(record, this.clock.wallMs()), source: 'store' };
  }
}

function refuseConfigured(given: string): void {
  if (!given.startsWith(CONFIGURED_PREFIX)) return;
  throw new OperatorError('refused', `${given.slice(CONFIGURED_PREFIX.length)} stands in the configuration`, {
    hint: 'take it out of auth.admin.tokens and restart the server',
  });
}
