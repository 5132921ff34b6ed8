import type { ConfigProblem } from '../shared/errors.js';

/** When, by whom, and what a reload changed. */
export interface ConfigChange {
  readonly wallMs: number;
  readonly by: string;
  /** `models: m1 changed; settings: log.level`. */
  readonly detail: string;
}

/** The certificate of a listener, as it is in force. */
export interface CertificateFacts {
  readonly listener: 'admin' | 'agent';
  /** Where it is read from. */
  readonly file: string;
  readonly endsWallMs: number;
  /** Why what the files hold now is not taken; undefined while it is what is in force. */
  readonly problem: string | undefined;
}

/** What a running server knows about itself. */
export class ServerFacts {
  /** Filled in as listeners come up. */
  readonly addresses: { client?: string; admin?: string; agent?: string } = {};
  configLoadedWallMs: number;
  /** The last configuration that changed something while the server ran: undefined while there was none. */
  configChange: ConfigChange | undefined;
  /** When the last reload was tried; undefined while there was none. */
  configTriedWallMs: number | undefined;
  /** Why the last reload was refused, all of it. */
  configProblems: readonly ConfigProblem[] | undefined;
  /** Paths of changed settings that wait for a restart. */
  configNeedsRestart: readonly string[] = [];
  /** Of each listener that has TLS. */
  certificates: readonly CertificateFacts[] = [];

  constructor(
    readonly version: string,
    readonly mode: 'control' | 'router',
    readonly startedMs: number,
    readonly startedWallMs: number,
  ) {
    this.configLoadedWallMs = startedWallMs;
  }
}

export const SERVER_FACTS = Symbol('ServerFacts');
