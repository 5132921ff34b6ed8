/**
 * The agent's one stream to the server. It may be away for any time: engines serve on, and the first thing a new stream
 * carries is the whole truth. Nothing piles up meanwhile, because a report is made when it can be sent, not before.
 */
import { status, type ChannelCredentials, type ServiceError } from '@grpc/grpc-js';
import type {
  CommandResult,
  Hello,
  LogChunk,
  LogRequest,
  NodeReport,
  Refusal,
  ServerMessage,
  Welcome,
} from '../agent-protocol/messages.js';
import { createAgentGatewayClient, type AgentStream } from '../agent-protocol/proto.js';
import { parseServerMessage } from '../agent-protocol/to-domain.js';
import {
  helloToWire,
  logChunkToWire,
  pongToWire,
  reportToWire,
  resultToWire,
} from '../agent-protocol/to-wire.js';
import type { WireAgentMessage } from '../agent-protocol/wire.js';
import type { AgentTlsConfig } from '../config/agent-config.js';
import type { Clock, Timer } from '../shared/clock.js';
import { errorChain } from '../shared/errors.js';
import type { Logger } from '../shared/logger.js';
import type { Random } from '../shared/random.js';
import { DialCertificates, readToken } from './dial-credentials.js';
import type { AgentTimings } from './limits.js';
import { FIRST_DIAL, nextDial, type DialEnd } from './reconnect.js';
import type { TlsProblem } from '../shared/tls-files.js';
import { pause, within } from './wait.js';

/** How long an ending agent waits for its last report to be taken. */
const GOODBYE_MS = 1_000;

type Orders = Extract<ServerMessage, { kind: 'start' | 'stop' | 'drain' }>;

export interface LinkDeps {
  readonly server: string;
  readonly tls: AgentTlsConfig | undefined;
  readonly joinTokenFile: string | undefined;
  readonly clock: Clock;
  readonly random: Random;
  readonly logger: Logger;
  readonly timings: AgentTimings;
  /** Longest pause between two reports; the server may ask for a shorter one. */
  readonly heartbeatMs: number;
  readonly hello: () => Omit<Hello, 'joinToken'>;
  readonly report: (sequence: number, maxMessageBytes: number, withTails: boolean) => NodeReport;
  /** Highest term obeyed; a lower server is not listened to. */
  readonly highestTerm: () => number;
  readonly welcomed: (welcome: Welcome) => void;
  readonly order: (order: Orders) => CommandResult;
  readonly fetchLogs: (request: LogRequest) => void;
  /** The stream takes log chunks again. */
  readonly drained: () => void;
  readonly closed: () => void;
}

/** Answers to commands that wait for a blocked stream; beyond, the oldest goes: the server asks again. */
const RESULTS_MAX = 256;
export class AgentLink {
  private readonly ended = new AbortController();
  private session: Session | undefined;
  private running: Promise<void> = Promise.resolve();
  private sequence = 0;
  /** After a message was too long for the server the same bytes are not sent again. */
  private withTails = true;
  private lastTold = '';
  private refusalToldMs = -Infinity;
  private readonly certificates: DialCertificates;

  constructor(private readonly deps: LinkDeps) {
    this.certificates = new DialCertificates(deps.tls, (problem) => this.tellCertificates(problem));
  }

  get connected(): boolean {
    return this.session?.isOpen ?? false;
  }

  start(): void {
    this.running = this.run();
  }

  /** Something changed: a report goes out soon. */
  notify(): void {
    this.session?.notify();
  }

  sendLog(chunk: LogChunk): boolean {
    return this.session?.sendLog(chunk) ?? false;
  }

  async close(): Promise<void> {
    this.ended.abort();
    await this.session?.goodbye();
    await this.running;
  }

  private async run(): Promise<void> {
    let memory = FIRST_DIAL;
    while (!this.ended.signal.aborted) {
      const end = await this.dial();
      if (this.ended.signal.aborted) return;
      const next = nextDial(memory, end, this.deps.random, this.deps.timings);
      memory = next.memory;
      await pause(this.deps.clock, next.pauseMs, this.ended.signal);
    }
  }

  private async dial(): Promise<DialEnd> {
    const { server, logger, clock } = this.deps;
    let hello: Hello;
    let channel: ChannelCredentials;
    try {
      // Read at each dial: tokens and certificates are rotated under a running agent.
      hello = { ...this.deps.hello(), ...readToken(this.deps.joinTokenFile) };
      channel = this.certificates.next(clock.wallMs());
    } catch (error) {
      this.tell(`cannot dial: ${errorChain(error).join(': ')}`);
      return { kind: 'refused' };
    }
    const session = new Session(
      {
        ...this.deps,
        nextReport: (max) => this.deps.report(++this.sequence, max, this.withTails),
        opened: (welcome) => {
          this.lastTold = '';
          logger.info({ server, term: welcome.term, build: welcome.build }, 'connected to the server');
        },
      },
      hello,
      createAgentGatewayClient(server, channel),
    );
    this.session = session;
    const end = await session.over;
    this.session = undefined;
    this.deps.closed();
    this.withTails = end.code !== status.RESOURCE_EXHAUSTED;
    if (!this.ended.signal.aborted) this.tellEnd(end);
    return end.dial;
  }

  private tellCertificates(problem: TlsProblem | undefined): void {
    const { logger } = this.deps;
    if (problem === undefined) logger.info('the certificates in the files are in use again');
    else
      logger.warn(
        { reason: problem.message },
        'the certificates in the files are not used, but those before',
      );
  }

  /** A refusal ends by somebody's doing alone: it is told again and again, though not with every try, or it would be forgotten. */
  private tellEnd({ dial, reason }: SessionEnd): void {
    if (dial.kind !== 'refused' && dial.kind !== 'taken') return this.tell(reason);
    const { server, logger, clock, timings } = this.deps;
    const nowMs = clock.monotonicMs();
    const again = nowMs - this.refusalToldMs >= timings.refusedPauseMs / 2;
    if (reason === this.lastTold && !again) return;
    this.lastTold = reason;
    this.refusalToldMs = nowMs;
    logger.error(
      { server, reason },
      'the server does not take this agent; it asks again, and engines serve on',
    );
  }

  /** The log says a reason once, not with every try. */
  private tell(reason: string): void {
    if (reason === this.lastTold) return;
    this.lastTold = reason;
    this.deps.logger.warn({ server: this.deps.server, reason }, 'no link to the server; engines serve on');
  }
}

interface SessionEnd {
  readonly dial: DialEnd;
  readonly reason: string;
  readonly code?: number;
}

interface SessionDeps extends LinkDeps {
  readonly nextReport: (maxMessageBytes: number) => NodeReport;
  readonly opened: (welcome: Welcome) => void;
}

/** One stream, from the hello to its end. */
class Session {
  readonly over: Promise<SessionEnd>;
  private settle: (end: SessionEnd) => void = () => {};
  private readonly stream: AgentStream;
  private welcome: Welcome | undefined;
  private openedMs = 0;
  private heardMs: number;
  private blocked = false;
  private dirty = false;
  private readonly results: CommandResult[] = [];
  private timers: { watch?: Timer; heartbeat?: Timer; soon?: Timer } = {};
  private isOver = false;

  constructor(
    private readonly deps: SessionDeps,
    hello: Hello,
    private readonly client: ReturnType<typeof createAgentGatewayClient>,
  ) {
    this.over = new Promise((resolve) => (this.settle = resolve));
    this.heardMs = deps.clock.monotonicMs();
    this.stream = client.connect();
    this.stream.on('data', (wire) => this.receive(wire));
    this.stream.on('error', (error: ServiceError) => this.streamFailed(error));
    this.stream.on('end', () => this.end({ reason: 'the server ended the stream' }));
    this.stream.on('drain', () => this.drained());
    this.write(helloToWire(hello));
    this.watch();
  }

  get isOpen(): boolean {
    return this.welcome !== undefined && !this.isOver;
  }

  /** Sends what is true now and closes the stream in order, as far as that goes quickly. */
  async goodbye(): Promise<void> {
    if (this.isOpen) {
      this.dirty = true;
      this.flush();
      this.stream.end();
      await within(this.deps.clock, GOODBYE_MS, this.over);
    }
    this.end({ reason: 'the agent ends' });
  }

  notify(): void {
    this.dirty = true;
    if (!this.isOpen || this.timers.soon !== undefined) return;
    this.timers.soon = this.deps.clock.setTimer(this.deps.timings.reportDebounceMs, () => {
      delete this.timers.soon;
      this.flush();
    });
  }

  sendLog(chunk: LogChunk): boolean {
    if (!this.isOpen || this.blocked) return false;
    this.write(logChunkToWire(chunk));
    return true;
  }

  // ------------------------------------------------------------ receiving

  private receive(wire: Parameters<typeof parseServerMessage>[0]): void {
    if (this.isOver) return;
    this.heardMs = this.deps.clock.monotonicMs();
    const parsed = parseServerMessage(wire, this.deps.hello().nodeId);
    if (!parsed.ok) {
      this.deps.logger.warn({ reason: parsed.problem.message }, 'a message of the server makes no sense');
      return;
    }
    const { message } = parsed;
    switch (message.kind) {
      case 'welcome':
        return this.welcomed(message.welcome);
      case 'refusal':
        return this.refused(message.refusal);
      case 'start':
      case 'stop':
      case 'drain':
        return this.ordered(message);
      case 'fetchLogs':
        return this.deps.fetchLogs(message.request);
      case 'ping':
        return this.write(pongToWire(message.nonce));
      case 'ack':
      case 'unknown':
        return undefined;
    }
  }

  private welcomed(welcome: Welcome): void {
    if (welcome.term < this.deps.highestTerm()) {
      const reason = `the server speaks for term ${welcome.term}, this agent already obeyed ${this.deps.highestTerm()}`;
      return this.end({ reason, dial: { kind: 'refused' } });
    }
    this.welcome = welcome;
    this.openedMs = this.deps.clock.monotonicMs();
    this.deps.welcomed(welcome);
    this.deps.opened(welcome);
    this.dirty = true;
    this.flush();
    this.beat(Math.min(this.deps.heartbeatMs, welcome.heartbeatIntervalMs || this.deps.heartbeatMs));
  }

  private refused(refusal: Refusal): void {
    const by = refusal.serverBuild === '' ? '' : ` (server ${refusal.serverBuild})`;
    const dial: DialEnd = { kind: refusal.code === 'nodeIdTaken' ? 'taken' : 'refused' };
    this.end({ reason: `refused: ${refusal.message}${by}`, dial });
  }

  private ordered(order: Orders): void {
    if (this.welcome === undefined) return;
    this.results.push(this.deps.order(order));
    if (this.results.length > RESULTS_MAX) this.results.shift();
    this.dirty = true;
    this.flush();
  }

  // ------------------------------------------------------------ sending

  private beat(intervalMs: number): void {
    this.timers.heartbeat = this.deps.clock.setTimer(intervalMs, () => {
      this.dirty = true;
      this.flush();
      this.beat(intervalMs);
    });
  }

  private drained(): void {
    this.blocked = false;
    this.flush();
    if (!this.blocked) this.deps.drained();
  }

  /** Sends what waits, as far as the stream takes it: answers first, then one report with what is true now. */
  private flush(): void {
    const { welcome } = this;
    if (welcome === undefined || this.isOver) return;
    while (!this.blocked) {
      const result = this.results.shift();
      if (result === undefined) break;
      this.write(resultToWire(result));
    }
    if (this.blocked || !this.dirty || this.isOver) return;
    this.dirty = false;
    this.write(reportToWire(this.deps.nextReport(welcome.maxMessageBytes)));
  }

  private write(message: WireAgentMessage): void {
    if (!this.isOver && !this.stream.write(message)) this.blocked = true;
  }

  // ------------------------------------------------------------ ending

  /** A cable that is pulled sends no FIN: silence is the only sign. */
  private watch(): void {
    const { clock, timings } = this.deps;
    const limitMs = this.welcome?.silenceLimitMs || timings.welcomeTimeoutMs;
    const silentMs = clock.monotonicMs() - this.heardMs;
    if (silentMs >= limitMs) {
      const what = this.welcome === undefined ? 'no welcome' : 'nothing heard';
      return this.end({ reason: `${what} for ${Math.round(silentMs / 1000)} s` });
    }
    this.timers.watch = clock.setTimer(Math.min(1_000, limitMs - silentMs), () => this.watch());
  }

  private streamFailed(error: ServiceError): void {
    const refusing: readonly (status | undefined)[] = [
      status.UNAUTHENTICATED,
      status.PERMISSION_DENIED,
      status.FAILED_PRECONDITION,
      status.UNIMPLEMENTED,
    ];
    const dial = error.code === status.ALREADY_EXISTS ? 'taken' : 'refused';
    const refused = dial === 'taken' || refusing.includes(error.code);
    this.end({
      reason: error.details || error.message,
      code: error.code,
      ...(refused ? { dial: { kind: dial } } : {}),
    });
  }

  private end(how: { reason: string; code?: number; dial?: DialEnd }): void {
    if (this.isOver) return;
    this.isOver = true;
    for (const timer of Object.values(this.timers)) timer.cancel();
    // Errors after the end have nobody to tell.
    this.stream.on('error', () => {});
    this.stream.cancel();
    this.client.close();
    const livedMs = this.deps.clock.monotonicMs() - this.openedMs;
    const natural: DialEnd = this.welcome === undefined ? { kind: 'failed' } : { kind: 'lost', livedMs };
    this.settle({
      dial: how.dial ?? natural,
      reason: how.reason,
      ...(how.code === undefined ? {} : { code: how.code }),
    });
  }
}
