import { Inject, Injectable } from '@nestjs/common';
import type { CredentialIssuer } from '../access/credential-issuer.js';
import type { KeyRing } from '../access/key-ring.js';
import { ISSUER, KEY_RING } from '../access/ports.js';
import { credentialState, type ApiKeyRecord } from '../access/records.js';
import { CLOCK, type Clock } from '../shared/clock.js';
import { OperatorError } from '../shared/errors.js';
import { STATE_STORE, type StateStore } from '../store/ports.js';
import { AuditLog } from './audit-log.js';
import { findByPrefix } from './find.js';
import { surplusRevoked } from './revoked-records.js';
import type { Caller } from './roles.js';
import { known } from './view-times.js';
import type { CreatedKeyView, KeyUseView, KeyView } from './views/credentials.js';

/** Keys that are not revoked. */
const KEYS_MAX = 10_000;

/** What is asked for a new key. */
export type KeyRequest = Pick<ApiKeyRecord, 'name'> &
  Partial<
    Pick<ApiKeyRecord, 'models' | 'requestsPerMinute' | 'tokensPerMinute' | 'maxConcurrent' | 'priority'>
  > & { readonly expires?: string };

/** API keys: made, listed, revoked. What is stored holds for the next request. */
@Injectable()
export class KeysService {
  constructor(
    @Inject(STATE_STORE) private readonly store: StateStore,
    @Inject(KEY_RING) private readonly ring: KeyRing,
    @Inject(ISSUER) private readonly issuer: CredentialIssuer,
    @Inject(AuditLog) private readonly audit: AuditLog,
    @Inject(CLOCK) private readonly clock: Clock,
  ) {}

  /** Oldest first, revoked ones too as long as they are kept. */
  list(): readonly KeyView[] {
    return this.records()
      .toSorted((a, b) => (a.createdAt < b.createdAt ? -1 : 1))
      .map((record) => this.view(record));
  }

  create(caller: Caller, request: KeyRequest, notes: readonly string[]): CreatedKeyView {
    const asked = { caller, action: 'create key', target: request.name };
    this.audit.attempt(asked, () => this.refuseTooMany());
    const { name, expires, models = [], ...limits } = request;
    const { secret, record: issued } = this.issuer.issue('key', name, caller.name, expires);
    const record: ApiKeyRecord = { ...issued, models, ...withoutUndefined(limits) };
    const limitsText = describeLimits(record);
    this.commit(
      record,
      { caller, action: 'create key', target: record.id, detail: limitsText },
      'KeyCreated',
    );
    return { ...this.view(record), secret, notes };
  }

  /** Requests that run on it go on, the next one is refused. Asking twice changes nothing. */
  revoke(caller: Caller, given: string): KeyView {
    const record = findByPrefix('key', given, this.records(), ({ id }) => id);
    if (record.revokedAt !== undefined) return this.view(record);
    const revoked = {
      ...record,
      revokedAt: this.issuer.nowText,
      revokedBy: caller.name,
      // What the key is used for is kept only while it may be used.
      ...known('lastUsedAt', this.use(record.id)?.lastUsedAt),
    };
    this.commit(
      revoked,
      { caller, action: 'revoke key', target: record.id, detail: record.name },
      'KeyRevoked',
    );
    return this.view(revoked);
  }

  private refuseTooMany(): void {
    if (this.records().filter(({ revokedAt }) => revokedAt === undefined).length < KEYS_MAX) return;
    throw new OperatorError('refused', `there are ${KEYS_MAX} keys already`, {
      hint: 'revoke those nobody uses: llmgw ctl keys list -o wide',
    });
  }

  private commit(record: ApiKeyRecord, entry: Parameters<AuditLog['commit']>[0], type: string): void {
    const ops = [
      { op: 'put', collection: 'keys', key: record.id, value: record } as const,
      ...surplusRevoked('keys', this.records(), record),
    ];
    this.audit.commit(entry, ops, {
      type,
      subject: { kind: 'key', id: record.id },
      reason: { code: 'requested', message: `${record.name}: ${entry.action} by ${entry.caller.name}` },
      actor: entry.caller.name,
    });
    this.ring.put(record);
  }

  private records(): readonly ApiKeyRecord[] {
    return this.store.list<ApiKeyRecord>('keys').map(({ value }) => value);
  }

  private view(record: ApiKeyRecord): KeyView {
    const { hash: _, ...shown } = record;
    const use = this.use(record.id);
    return {
      ...shown,
      state: credentialState(record, this.clock.wallMs()),
      ...(use === undefined ? {} : { use }),
    };
  }

  private use(id: string): KeyUseView | undefined {
    const key = this.ring.get(id);
    if (key === undefined) return undefined;
    const { lastUsedWallMs, limiter, requests, refused, tokens } = key;
    return {
      ...(lastUsedWallMs === undefined ? {} : { lastUsedAt: new Date(lastUsedWallMs).toISOString() }),
      inflight: limiter.concurrent,
      requestsTotal: requests,
      refusedTotal: refused,
      tokensTotal: tokens,
    };
  }
}

function withoutUndefined<T extends object>(object: T): T {
  return Object.fromEntries(Object.entries(object).filter(([, value]) => value !== undefined)) as T;
}

/** The limits in the words of the audit log. */
function describeLimits(record: ApiKeyRecord): string {
  const { name, models, requestsPerMinute, tokensPerMinute, maxConcurrent, priority, expiresAt } = record;
  const parts = [
    ['models', models.length === 0 ? 'all' : models.join(',')],
    ['rpm', requestsPerMinute],
    ['tpm', tokensPerMinute],
    ['concurrent', maxConcurrent],
    ['priority', priority],
    ['expires', expiresAt],
  ] as const;
  const known = parts.filter(([, value]) => value !== undefined).map(([what, value]) => `${what}=${value}`);
  return `${name}: ${known.join(' ')}`;
}
