import type { ConfigInForce } from '../config/config-in-force.js';
import type { ServerConfig } from '../config/server-config.js';
import type { Readiness } from '../admin-api/readiness.js';
import type { ServerFacts } from '../admin-api/server-facts.js';
import type { Clock } from '../shared/clock.js';
import type { Logger } from '../shared/logger.js';
import type { Random } from '../shared/random.js';
import type { StateStore } from '../store/ports.js';
import type { Term } from '../store/term.js';
import type { ToldSource } from './config-watch.js';
import type { ListenerCertificates } from './listener-certificates.js';

/** What is made before Nest and lives for the whole run. */
export interface ServerParts {
  /** What is in force; every read sees the latest reload. */
  readonly config: ServerConfig;
  readonly inForce: ConfigInForce;
  /** Where the configuration is read from again. */
  readonly source: ToldSource;
  readonly logger: Logger;
  readonly clock: Clock;
  readonly random: Random;
  readonly decisionRandom: Random;
  readonly store: StateStore;
  readonly term: Term;
  readonly facts: ServerFacts;
  readonly readiness: Readiness;
  readonly certificates: ListenerCertificates;
  /** Descriptor of a listening socket for clients, handed over by whoever started the process. */
  readonly clientSocketFd?: number | undefined;
}
