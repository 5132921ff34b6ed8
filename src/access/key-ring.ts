import type { Clock } from '../shared/clock.js';
import type { StateStore } from '../store/ports.js';
import { ApiKey } from './api-key.js';
import type { ApiKeyRecord } from './records.js';
import { secretHash } from './secrets.js';

/** Credentials whose key is remembered, to spare their hash; beyond that all are forgotten and found again. */
const REMEMBERED_MAX = 10_000;

/**
 * The keys that are not revoked, in memory: a request must not wait for the store, and a change must hold for the next
 * request. Filled from the store at start; whoever changes the store tells the ring in the same turn.
 */
export class KeyRing {
  private readonly byId = new Map<string, ApiKey>();
  private readonly byHash = new Map<string, ApiKey>();
  /** By the credential itself. Only of keys that exist: others could fill it with anything. */
  private readonly remembered = new Map<string, ApiKey>();

  constructor(
    store: Pick<StateStore, 'list'>,
    private readonly clock: Clock,
  ) {
    for (const { value } of store.list<ApiKeyRecord>('keys')) this.put(value);
  }

  /** The key of a credential, expired ones too. */
  find(credential: string): ApiKey | undefined {
    if (this.byId.size === 0) return undefined;
    const known = this.remembered.get(credential);
    if (known !== undefined) return known;
    const key = this.byHash.get(secretHash(credential));
    if (key === undefined) return undefined;
    if (this.remembered.size >= REMEMBERED_MAX) this.remembered.clear();
    this.remembered.set(credential, key);
    return key;
  }

  get(id: string): ApiKey | undefined {
    return this.byId.get(id);
  }

  keys(): Iterable<ApiKey> {
    return this.byId.values();
  }

  /** A record was stored: holds from now on. A revoked one is gone; requests that an engine works on go on. */
  put(record: ApiKeyRecord): void {
    const before = this.byId.get(record.id);
    if (before !== undefined) this.remove(before);
    if (record.revokedAt !== undefined) {
      if (before !== undefined) before.revoked = true;
      return;
    }
    const key = new ApiKey(record, this.clock.monotonicMs());
    this.byId.set(record.id, key);
    this.byHash.set(record.hash, key);
  }

  private remove(key: ApiKey): void {
    this.byId.delete(key.id);
    this.byHash.delete(key.record.hash);
    this.remembered.clear();
  }
}
