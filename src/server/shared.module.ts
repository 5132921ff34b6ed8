import { Module, type DynamicModule } from '@nestjs/common';
import { READINESS } from '../admin-api/readiness.js';
import { SERVER_FACTS } from '../admin-api/server-facts.js';
import { SERVER_CONFIG } from '../config/server-config.js';
import { CLIENT_SOCKET } from '../router/ports.js';
import { CLOCK } from '../shared/clock.js';
import { LOGGER } from '../shared/logger.js';
import { RANDOM } from '../shared/random.js';
import type { ServerParts } from './server-parts.js';

/** Configuration, log, time and chance, for every room. */
@Module({})
export class SharedModule {
  static register(parts: ServerParts): DynamicModule {
    const providers = [
      { provide: SERVER_CONFIG, useValue: parts.config },
      { provide: LOGGER, useValue: parts.logger },
      { provide: CLOCK, useValue: parts.clock },
      { provide: RANDOM, useValue: parts.random },
      { provide: SERVER_FACTS, useValue: parts.facts },
      { provide: READINESS, useValue: parts.readiness },
      { provide: CLIENT_SOCKET, useValue: parts.clientSocketFd },
    ];
    return {
      module: SharedModule,
      global: true,
      providers,
      exports: providers.map((provider) => provider.provide),
    };
  }
}
