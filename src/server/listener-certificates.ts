/**
 * Renewed certificates are taken up while the listeners run: a restart for the sake of a file would be a gap for nothing.
 * Connections that are open keep what they were opened with; new ones get the new.
 */
import { FileSettle } from '../config/file-settle.js';
import type { TlsConfig } from '../config/auth-config.js';
import type { CertificateFacts } from '../admin-api/server-facts.js';
import type { EventInput, EventLog } from '../events/event-log.js';
import type { Clock, Timer } from '../shared/clock.js';
import { ConfigError, errorChain } from '../shared/errors.js';
import type { Logger } from '../shared/logger.js';
import {
  readTls,
  sameTls,
  tlsEndsWallMs,
  tlsProblem,
  type LiveTls,
  type TlsMaterial,
  type TlsProblem,
} from '../shared/tls-files.js';

/** How often the files are looked at, ms: links, mounts and network file systems tell no watcher. */
const LOOK_EVERY_MS = 5_000;
/** A certificate whose key is still to come is no fault yet, ms. */
const PAIR_MS = 2_000;

export type TlsListener = CertificateFacts['listener'];
export type TlsOfListeners = { readonly [listener in TlsListener]?: TlsConfig };
const LISTENERS: readonly TlsListener[] = ['admin', 'agent'];

/** What a look found that somebody should know. */
type Told = (certificate: ListenerCertificate, problem: TlsProblem | undefined) => void;

/** The certificate of one listener: what is in force, and what is wrong with the files if they hold something else. */
export class ListenerCertificate implements LiveTls, CertificateFacts {
  material: TlsMaterial;
  private trouble: TlsProblem | undefined;
  private toldProblem: string | undefined;
  private readonly settle: FileSettle;
  private readonly takers: ((material: TlsMaterial) => void)[] = [];

  /** Throws ConfigError for files that cannot serve at all; certificates that ended serve whom they may, as before. */
  constructor(
    readonly listener: TlsListener,
    private readonly files: TlsConfig,
    private readonly clock: Clock,
  ) {
    this.material = atStart(listener, files, clock.wallMs());
    this.settle = new FileSettle(contentOf(this.material));
  }

  get file(): string {
    return this.files.certFile;
  }

  get endsWallMs(): number {
    return tlsEndsWallMs(this.material) ?? 0;
  }

  get problem(): string | undefined {
    return this.trouble?.message;
  }

  follow(taker: (material: TlsMaterial) => void): void {
    this.takers.push(taker);
  }

  /** Whether what is in force is of use at this time. */
  untimely(): TlsProblem | undefined {
    return tlsProblem(this.files, this.material, this.clock.wallMs());
  }

  /** Takes what the files hold, once it is whole and of use. Returns when to look again, ms, if that is soon. */
  look(told: Told): number | undefined {
    const { found, failure } = this.read();
    const content = found === undefined ? undefined : contentOf(found);
    const settled = this.settle.look(content, this.clock.monotonicMs());
    if (settled.kind === 'wait') return settled.ms;
    if (settled.kind === 'same' && this.problem !== this.toldProblem && this.trouble !== undefined) {
      this.toldProblem = this.problem;
      told(this, this.trouble);
    }
    // What was refused for being early is looked at again: its time comes without the files changing.
    if (settled.kind === 'take' || this.trouble?.kind === 'early') this.consider(found, failure, told);
    return this.problem === this.toldProblem ? undefined : PAIR_MS;
  }

  private read(): { readonly found?: TlsMaterial; readonly failure?: TlsProblem } {
    try {
      return { found: readTls(this.files) };
    } catch (error) {
      return { failure: { kind: 'broken', message: errorChain(error).join(': ') } };
    }
  }

  private consider(found: TlsMaterial | undefined, failure: TlsProblem | undefined, told: Told): void {
    const renewed = found !== undefined && !sameTls(found, this.material);
    this.trouble = failure ?? (renewed ? tlsProblem(this.files, found, this.clock.wallMs()) : undefined);
    if (this.trouble !== undefined) return;
    const recovered = this.toldProblem !== undefined;
    this.toldProblem = undefined;
    if (renewed) {
      this.material = found;
      for (const take of this.takers) take(found);
    }
    if (renewed || recovered) told(this, undefined);
  }
}

function atStart(listener: TlsListener, files: TlsConfig, nowWallMs: number): TlsMaterial {
  const refuse = (message: string, cause?: unknown): ConfigError =>
    Object.assign(
      new ConfigError([{ source: 'configuration', path: `auth.${SETTING[listener]}.tls`, message }]),
      cause === undefined ? {} : { cause },
    );
  let material: TlsMaterial;
  try {
    material = readTls(files);
  } catch (error) {
    throw refuse(errorChain(error).join(': '), error);
  }
  const problem = tlsProblem(files, material, nowWallMs);
  if (problem?.kind === 'broken') throw refuse(problem.message);
  return material;
}

const SETTING = { admin: 'admin', agent: 'agents' } as const;

/** One text for all files: a certificate without its key is no more whole than half a file. */
function contentOf({ cert, key, ca }: TlsMaterial): string | undefined {
  const parts = [cert, key, ca].filter((part) => part !== undefined);
  // Empty is how a file looks that is about to be written.
  if (parts.some((part) => part.length === 0)) return undefined;
  return parts.map((part) => part.toString('latin1')).join('\0');
}

/** The certificates of all listeners that have TLS, looked after for as long as the server runs. */
export class ListenerCertificates {
  readonly all: readonly ListenerCertificate[];
  private events: Pick<EventLog, 'append' | 'commit'> | undefined;
  private timer: Timer | undefined;
  private open = true;

  constructor(
    files: TlsOfListeners,
    private readonly clock: Clock,
    private readonly logger: Logger,
  ) {
    this.all = LISTENERS.flatMap((listener) => {
      const of = files[listener];
      return of === undefined ? [] : [new ListenerCertificate(listener, of, clock)];
    });
  }

  of(listener: TlsListener): ListenerCertificate | undefined {
    return this.all.find((one) => one.listener === listener);
  }

  /** From now on the files are looked at, and what is found is in the timeline. */
  watch(events: Pick<EventLog, 'append' | 'commit'>): void {
    this.events = events;
    for (const one of this.all) {
      const problem = one.untimely();
      if (problem !== undefined)
        this.logger.warn({ listener: one.listener }, `the certificate is of no use now: ${problem.message}`);
    }
    this.look();
  }

  /** Looks now; somebody says that the files have changed. */
  look(): void {
    if (!this.open || this.all.length === 0) return;
    this.timer?.cancel();
    const soon = this.all.flatMap((one) => one.look((...found) => this.told(...found)) ?? []);
    this.timer = this.clock.setTimer(Math.min(LOOK_EVERY_MS, ...soon), () => this.look());
  }

  close(): void {
    this.open = false;
    this.timer?.cancel();
  }

  private told(certificate: ListenerCertificate, problem: TlsProblem | undefined): void {
    const { listener, file } = certificate;
    const fields = { listener, file, endsAt: new Date(certificate.endsWallMs).toISOString() };
    if (problem === undefined) this.logger.info(fields, 'the certificate in the file is in force');
    else
      this.logger.warn(
        { ...fields, reason: problem.message },
        'a new certificate is not taken; the one before stays in force',
      );
    this.record(eventOf(certificate, problem));
  }

  private record(event: EventInput): void {
    try {
      this.events?.commit([], [event]);
    } catch (error) {
      // It is kept in memory and written when the store takes writes again.
      this.events?.append(event);
      this.logger.warn({ causes: errorChain(error) }, 'the event of a certificate could not be stored yet');
    }
  }
}

function eventOf({ listener, endsWallMs }: ListenerCertificate, problem: TlsProblem | undefined): EventInput {
  const until = new Date(endsWallMs).toISOString();
  const subject = { kind: 'server', id: `${listener}-certificate` } as const;
  if (problem === undefined) {
    const message = `the certificate of the ${listener} listener is in force as the file has it; it ends at ${until}`;
    return {
      type: 'CertificateRenewed',
      subject,
      reason: { code: 'certificate_renewed', message },
      actor: 'server',
    };
  }
  return {
    type: 'CertificateRefused',
    severity: 'warning',
    subject,
    reason: {
      code: 'certificate_refused',
      message: `the one before stays, until ${until}: ${problem.message}`,
    },
    actor: 'server',
  };
}
