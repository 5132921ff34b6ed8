import { Inject, Injectable } from '@nestjs/common';
import { Gauge, register } from 'prom-client';
import { SERVER_FACTS, type ServerFacts } from '../admin-api/server-facts.js';

/** The configuration in force: whether the last reload was taken, and the certificates in force. */
@Injectable()
export class ConfigMetrics {
  constructor(@Inject(SERVER_FACTS) facts: ServerFacts) {
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
      help: 'When the certificate that a listener shows ends, seconds since 1970.',
      labelNames: ['listener'],
      registers: [register],
      collect() {
        for (const { listener, endsWallMs } of facts.certificates) this.set({ listener }, endsWallMs / 1_000);
      },
    });
    new Gauge({
      name: 'llmgw_certificate_last_reload_successful',
      help: '1 while a listener shows the certificate that is in its file, 0 while the file holds one it cannot take.',
      labelNames: ['listener'],
      registers: [register],
      collect() {
        for (const { listener, problem } of facts.certificates)
          this.set({ listener }, problem === undefined ? 1 : 0);
      },
    });
  }
}
