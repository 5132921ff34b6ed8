import { Module, type DynamicModule } from '@nestjs/common';
import { SERVER_CONFIG, type ServerConfig } from '../config/server-config.js';
import { AUTHORISER } from '../router/authoriser.js';
import { CLOCK, type Clock } from '../shared/clock.js';
import { STATE_STORE, type StateStore } from '../store/ports.js';
import { KeyAuthoriser } from './key-authoriser.js';
import { KeyMetrics } from './key.metrics.js';
import { KeyRing } from './key-ring.js';
import { CredentialIssuer } from './credential-issuer.js';
import { ISSUER, KEY_RING, TOKEN_RING } from './ports.js';
import { systemSecrets } from './secrets.js';
import { TokenRing } from './token-ring.js';

/** Who may do what: keys of clients, tokens of operators and agents. For everyone who lets somebody in. */
@Module({})
export class AccessModule {
  static register(): DynamicModule {
    return {
      module: AccessModule,
      global: true,
      providers: [
        {
          provide: KEY_RING,
          inject: [STATE_STORE, CLOCK],
          useFactory: (store: StateStore, clock: Clock) => new KeyRing(store, clock),
        },
        {
          provide: TOKEN_RING,
          inject: [STATE_STORE, CLOCK, SERVER_CONFIG],
          useFactory: (store: StateStore, clock: Clock, config: ServerConfig) =>
            new TokenRing(store, clock, config),
        },
        {
          provide: AUTHORISER,
          inject: [KEY_RING, CLOCK, SERVER_CONFIG],
          useFactory: (ring: KeyRing, clock: Clock, config: ServerConfig) =>
            new KeyAuthoriser(ring, clock, config),
        },
        {
          provide: ISSUER,
          inject: [CLOCK],
          useFactory: (clock: Clock) => new CredentialIssuer(clock, systemSecrets),
        },
        KeyMetrics,
      ],
      exports: [KEY_RING, TOKEN_RING, AUTHORISER, ISSUER],
    };
  }
}
