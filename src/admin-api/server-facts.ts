import type { ConfigProblem } from '../shared/errors.js';

/** What a running server knows about itself. */
export class ServerFacts {
  /** Filled in as listeners come up. */
  readonly addresses: { client?: string; admin?: string; agent?: string } = {};
  configLoadedWallMs: number;
  /** When the last reload was tried; undefined while there was none. */
  configTriedWallMs: number | undefined;
  /** Why the last reload was refused, all of it. */
  configProblems: readonly ConfigProblem[] | undefined;
  /** Paths of changed settings that wait for a restart. */
  configNeedsRestart: readonly string[] = [];

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
