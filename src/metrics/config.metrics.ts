import { X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { Inject, Injectable } from '@nestjs/common';
import { Gauge, register } from 'prom-client';
import { SERVER_FACTS, type ServerFacts } from '../admin-api/server-facts.js';
import { SERVER_CONFIG, type ServerConfig } from '../config/server-config.js';

/** The configuration in force: whether the last reload was taken, and when certificates end. */
@Injectable()
export class ConfigMetrics {
  constructor(@Inject(SERVER_CONFIG) config: ServerConfig, @Inject(SERVER_FACTS) facts: ServerFacts) {
    new Gauge({
      name: 'llmgw_config_last_reload_successful',
      help: '1 while the last reload of the configuration was taken, or there was none.',
      registers: [register],
      collect() {
        this.set(facts.configProblems === undefined ? 1 : 0);
      },
    });
    new Gauge({
      name: 'llmgw_certificate_expiry_seconds',
      help: 'When the certificate of a listener ends, seconds since 1970.',
      labelNames: ['listener'],
      registers: [register],
      collect() {
        this.reset();
        for (const [listener, file] of certificates(config)) {
          const ends = expiry(file);
          // A file that cannot be read now has no known end; the listener itself goes on with what it loaded.
          if (ends !== undefined) this.set({ listener }, ends);
        }
      },
    });
  }
}

function certificates(config: ServerConfig): readonly (readonly [listener: string, file: string])[] {
  const { admin, agents } = config.auth;
  return [
    ...(admin.tls === undefined ? [] : [['admin', admin.tls.certFile] as const]),
    ...(agents.tls === undefined ? [] : [['agent', agents.tls.certFile] as const]),
  ];
}

function expiry(file: string): number | undefined {
  try {
    return Date.parse(new X509Certificate(readFileSync(file)).validTo) / 1_000;
  } catch {
    return undefined;
  }
}
