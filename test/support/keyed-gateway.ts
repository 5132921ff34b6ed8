import type { ApiKey } from '../../src/access/api-key.js';
import { KeyAuthoriser } from '../../src/access/key-authoriser.js';
import { KeyRing } from '../../src/access/key-ring.js';
import type { ApiKeyRecord } from '../../src/access/records.js';
import { SECRET_PREFIXES, secretHash } from '../../src/access/secrets.js';
import { ServerConfig } from '../../src/config/server-config.js';
import { systemClock } from '../../src/shared/clock.js';
import { MemoryStore } from '../../src/store/memory-store.js';
import type { RawClient } from './raw-client.js';
import { RouterHarness, type HarnessOptions } from './router-harness.js';

/** A router that knows keys, with engines behind it. Secrets of its keys must appear nowhere. */
export class KeyedGateway {
  private constructor(
    readonly harness: RouterHarness,
    readonly ring: KeyRing,
  ) {}

  static async start(required: boolean, options: HarnessOptions = {}): Promise<KeyedGateway> {
    const clock = options.clock ?? systemClock;
    const ring = new KeyRing(new MemoryStore(), clock);
    const config = new ServerConfig();
    config.auth.apiKeys.required = required;
    const authoriser = new KeyAuthoriser(ring, clock, config);
    return new KeyedGateway(await RouterHarness.start({ ...options, authoriser }), ring);
  }

  /** Makes a key and returns its secret. */
  key(id: string, limits: Partial<ApiKeyRecord> = {}): string {
    const secret = `${SECRET_PREFIXES.key}${id}-${'s'.repeat(40)}`;
    this.ring.put({
      id,
      name: id,
      hash: secretHash(secret),
      models: [],
      createdAt: '2026-01-01T00:00:00.000Z',
      createdBy: 'test',
      ...limits,
    });
    this.harness.secrets.push(secret);
    return secret;
  }

  revoke(id: string): void {
    this.ring.put({ ...this.known(id).record, revokedAt: '2026-01-02T00:00:00.000Z' });
  }

  known(id: string): ApiKey {
    const key = this.ring.get(id);
    if (key === undefined) throw new Error(`no key ${id}`);
    return key;
  }

  chat(secret: string, body: Record<string, unknown> = {}): Promise<RawClient> {
    return this.harness.chat(body, { authorization: `Bearer ${secret}` });
  }

  /** Status and error code of a chat. */
  async ask(secret: string, body: Record<string, unknown> = {}): Promise<string> {
    const client = await this.chat(secret, body);
    const { status, body: answer } = await client.response();
    const code = /"code":"(\w+)"/.exec(answer.toString())?.[1];
    return code === undefined ? String(status) : `${status} ${code}`;
  }
}
