/** What a running server knows about itself. */
export class ServerFacts {
  /** Filled in as listeners come up. */
  readonly addresses: { client?: string; admin?: string; agent?: string } = {};
  configLoadedWallMs: number;
  /** Why the last reload was refused. */
  configError: string | undefined;

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
