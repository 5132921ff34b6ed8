import { Inject, Injectable } from '@nestjs/common';
import { Counter, Gauge, register } from 'prom-client';
import type { ApiKey } from './api-key.js';
import type { KeyRing } from './key-ring.js';
import { KEY_RING } from './ports.js';

/** What each API key uses, by its id; the series of a revoked key is gone with the next scrape. */
@Injectable()
export class KeyMetrics {
  constructor(@Inject(KEY_RING) private readonly ring: KeyRing) {
    const { readKeys } = this;
    new Counter({
      name: 'llmgw_key_requests_total',
      help: 'Requests granted to an API key, by its id.',
      labelNames: ['key'],
      registers: [register],
      collect() {
        readKeys(this, ({ requests }) => requests);
      },
    });
    new Counter({
      name: 'llmgw_key_refused_total',
      help: 'Requests that a limit of their API key turned away.',
      labelNames: ['key'],
      registers: [register],
      collect() {
        readKeys(this, ({ refused }) => refused);
      },
    });
    new Counter({
      name: 'llmgw_key_tokens_total',
      help: 'Tokens an API key was charged for.',
      labelNames: ['key'],
      registers: [register],
      collect() {
        readKeys(this, ({ tokens }) => tokens);
      },
    });
    new Gauge({
      name: 'llmgw_key_inflight',
      help: 'Requests of an API key that wait or run now.',
      labelNames: ['key'],
      registers: [register],
      collect() {
        readKeys(this, ({ limiter }) => limiter.concurrent);
      },
    });
  }

  /** Only of keys that were used: most of many never are. */
  private readonly readKeys = (
    metric: Counter<'key'> | Gauge<'key'>,
    read: (key: ApiKey) => number,
  ): void => {
    metric.reset();
    for (const key of this.ring.keys()) {
      if (key.lastUsedWallMs !== undefined) metric.inc({ key: key.id }, read(key));
    }
  };
}
