/**
 * Every scripted fault with what its arguments mean. One spec is `name`, `name=arg` or `name=arg,arg`; several are joined by `;`.
 * Three ways in: header `x-sim-fault: SPEC`; `[[fault:SPEC]]` (or `[[fault@ENGINE:SPEC]]`) at any place in the last message, for
 * paths through gateways that drop unknown headers; `POST /sim/faults {"fault": SPEC, "count"?: N, "path"?: P}`.
 */
export const FAULTS = {
  refuse: 'ms=1000: cut this connection and refuse new ones for ms',
  hang: 'read the request and never answer',
  'reset-before-headers': 'TCP reset instead of an answer',
  status: 'code[,message]: answer with that status in the dialect’s error shape',
  'retry-after': 'value: 429 (or the status of `status`) with that Retry-After, whatever it is',
  redirect: '[code=307,]url: answer with a redirect',
  'headers-then-reset': 'the head, then a TCP reset',
  'reset-after-events': 'n: TCP reset after n events',
  'clean-cut-after-events':
    'n: the body ends in order after n events, nothing says that something is missing',
  'half-event-then-reset': 'n: n events, half of the next, TCP reset',
  'error-first': 'an error as the first event of a 200',
  'error-mid': 'n: an error event after n events, then the end',
  stall: 'n,ms: silence of ms after n events',
  drip: 'ms: one byte per write, one write per ms',
  garbage: '[n]: invalid JSON in every event, or in event n only',
  'split-utf8': 'writes end in the middle of characters',
  'giant-event': 'bytes: the first event is blown up to that size (its JSON stays valid and equal)',
  burst: 'all events in one write at the end',
  'one-byte': 'one byte per write, as fast as they go',
  'wrong-content-length': '[delta=10]: a whole answer announces so many bytes more than come, then ends',
  'close-after': 'Connection: close, and closes',
  'ignore-disconnect': 'go on generating when the client has left',
  'comments-only': '[ms=100]: comment lines for ever, no token',
  'no-done': 'the stream ends in order without its end mark',
} as const;

export type FaultName = keyof typeof FAULTS;

/** One fault to play. */
export interface Fault {
  readonly name: FaultName;
  readonly args: readonly string[];
}

/** Faults to play on requests to come, set by an admin call. */
export interface StandingFault {
  readonly faults: readonly Fault[];
  /** The spec as given. */
  readonly spec: string;
  /** Requests left; undefined = until cleared. */
  left: number | undefined;
  /** Only requests for this path (any route then); undefined = every request for text. */
  readonly path: string | undefined;
}

/** Reads a spec; the problem names what is wrong and what there is. */
export function parseFaults(
  spec: string,
): { readonly faults: readonly Fault[] } | { readonly problem: string } {
  const faults: Fault[] = [];
  for (const part of spec.split(';')) {
    const text = part.trim();
    if (text === '') continue;
    const equals = text.indexOf('=');
    const name = equals < 0 ? text : text.slice(0, equals);
    if (!isFaultName(name)) {
      return { problem: `unknown fault "${name}"; known: ${Object.keys(FAULTS).join(', ')}` };
    }
    faults.push({ name, args: equals < 0 ? [] : text.slice(equals + 1).split(',') });
  }
  return faults.length === 0 ? { problem: 'no fault given' } : { faults };
}

function isFaultName(name: string): name is FaultName {
  return Object.hasOwn(FAULTS, name);
}

/** The faults of one request, looked up by name. */
export class FaultSet {
  static readonly NONE = new FaultSet([]);

  constructor(private readonly faults: readonly Fault[]) {}

  get empty(): boolean {
    return this.faults.length === 0;
  }

  get names(): FaultName[] {
    return this.faults.map((fault) => fault.name);
  }

  has(name: FaultName): boolean {
    return this.faults.some((fault) => fault.name === name);
  }

  hasAny(names: readonly FaultName[]): boolean {
    return this.faults.some((fault) => names.includes(fault.name));
  }

  args(name: FaultName): readonly string[] | undefined {
    return this.faults.find((fault) => fault.name === name)?.args;
  }

  /** Argument `index` as a number; `fallback` when the fault has none there or it is no number; undefined when the fault is not set. */
  number(name: FaultName, index: number, fallback: number): number | undefined {
    const args = this.args(name);
    if (args === undefined) return undefined;
    const value = Number(args[index] ?? Number.NaN);
    return Number.isFinite(value) ? value : fallback;
  }
}

/** Faults waiting for requests, in the order they were set. */
export class FaultBook {
  private standing: StandingFault[] = [];

  /** Most standing faults kept; a script that sets more has lost count. */
  static readonly MAX_STANDING = 1000;

  add(fault: StandingFault): void {
    if (this.standing.length >= FaultBook.MAX_STANDING) throw new RangeError('too many standing faults');
    this.standing.push(fault);
  }

  list(): readonly StandingFault[] {
    return this.standing;
  }

  clear(): void {
    this.standing = [];
  }

  /** The first standing fault for this request, counted down. `generates` = the path is one of the routes for text. */
  take(path: string, generates: boolean): readonly Fault[] {
    if (this.standing.length === 0) return [];
    const found = this.standing.find((fault) => (fault.path === undefined ? generates : fault.path === path));
    if (found === undefined) return [];
    if (found.left !== undefined && --found.left <= 0) {
      this.standing = this.standing.filter((fault) => fault !== found);
    }
    return found.faults;
  }
}

/** Picks the directives that are meant for the engine called `engineName`: `:SPEC` for all, `@NAME:SPEC` for one. */
export function directivesFor(engineName: string, directives: readonly string[]): string[] {
  return directives.flatMap((directive) => {
    const colon = directive.indexOf(':');
    const target = directive.slice(0, colon);
    return target === '' || target === `@${engineName}` ? [directive.slice(colon + 1)] : [];
  });
}
