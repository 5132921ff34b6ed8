import { status as GrpcStatus } from '@grpc/grpc-js';
import { Inject, Injectable, type BeforeApplicationShutdown } from '@nestjs/common';
import { TOKEN_RING } from '../access/ports.js';
import type { TokenRing } from '../access/token-ring.js';
import type { ProtocolError } from '../agent-protocol/checks.js';
import { LOG_TAIL_LIMIT_BYTES } from '../agent-protocol/log-tail.js';
import type {
  AgentMessage,
  CommandResult,
  Hello,
  LogChunk,
  NodeReport,
  RefusalCode,
  Welcome,
} from '../agent-protocol/messages.js';
import {
  CLOCK_SKEW_WARN_MS,
  HEARTBEAT_INTERVAL_MS,
  MESSAGE_LIMIT_BYTES,
  SILENCE_LIMIT_MS,
  type GatewayStream,
} from '../agent-protocol/proto.js';
import {
  drainToWire,
  refusalToWire,
  startToWire,
  stopToWire,
  welcomeToWire,
} from '../agent-protocol/to-wire.js';
import { PROTOCOL_VERSION } from '../agent-protocol/version.js';
import type { WireServerMessage } from '../agent-protocol/wire.js';
import { shardKey } from '../domain/cluster.js';
import type { StartShardCommand, StopShardCommand } from '../domain/plan.js';
import { InventoryService } from '../inventory/inventory.service.js';
import type { Reconnection } from '../inventory/node-entry.js';
import {
  STATUS_SINK,
  type Dispatcher,
  type DrainShardCommand,
  type DispatchResult,
  type StatusSink,
} from '../reconciler/ports.js';
import type { Clock } from '../shared/clock.js';
import { errorChain } from '../shared/errors.js';
import type { Logger } from '../shared/logger.js';
import { TERM, type Term } from '../store/term.js';
import { AgentSession, type SessionOwner } from './agent-session.js';
import { JoinTokens } from './join-tokens.js';
import { judgeHello, type HelloVerdict } from './judge-hello.js';
import { LinkLog } from './link-log.js';
import { LogRequests } from './log-requests.js';
import { judgeClaim, type ClaimVerdict } from './node-claim.js';
import { GATEWAY_SETTINGS, type GatewaySettings, type LogQuery, type LogSource } from './ports.js';

/** An agent asks every few seconds for as long as another holds its id: not each of its tries is worth a line. */
const REFUSALS_PER_LINE = 8;
/** Instances remembered per node that lost their id to a later one. */
const SUPERSEDED_MAX = 16;

const REFUSAL_STATUS: Readonly<Record<RefusalCode, GrpcStatus>> = {
  incompatibleVersion: GrpcStatus.FAILED_PRECONDITION,
  nodeIdTaken: GrpcStatus.ALREADY_EXISTS,
  unauthenticated: GrpcStatus.UNAUTHENTICATED,
  invalidHello: GrpcStatus.INVALID_ARGUMENT,
  staleTerm: GrpcStatus.FAILED_PRECONDITION,
  unknown: GrpcStatus.UNAVAILABLE,
};

/** A node's open stream with what belongs to it. */
interface Holder {
  readonly session: AgentSession;
  readonly logs: LogRequests;
  /** What the stream is to the one before it, until its first report has told. */
  back?: Reconnection;
}

/** Running counts, read out by the metrics. */
export interface GatewayCounts {
  streamsTaken: number;
  streamsLost: number;
  messagesRefused: number;
  agentsRefused: number;
}

/**
 * Holds the open streams of the agents: takes their reports into the inventory and sends them commands. One live holder
 * per node id; what an old stream still does after it was replaced concerns nobody.
 */
@Injectable()
export class AgentGatewayService implements Dispatcher, LogSource, SessionOwner, BeforeApplicationShutdown {
  readonly counts: GatewayCounts = { streamsTaken: 0, streamsLost: 0, messagesRefused: 0, agentsRefused: 0 };
  private readonly holders = new Map<string, Holder>();
  private readonly sessions = new Set<AgentSession>();
  /** The term each node was last welcomed with, as many as the inventory has nodes. */
  private readonly welcomedAt = new Map<string, number>();
  private readonly superseded = new Map<string, Set<string>>();
  private readonly joinTokens: JoinTokens | undefined;
  private readonly clock: Clock;
  private readonly logger: Logger;
  private readonly links: LinkLog;
  private answered: (peer: string) => void = () => undefined;
  private commands = 0;
  private stopping = false;

  constructor(
    @Inject(GATEWAY_SETTINGS) private readonly settings: GatewaySettings,
    @Inject(STATUS_SINK) private readonly sink: StatusSink,
    @Inject(InventoryService) private readonly inventory: InventoryService,
    @Inject(TERM) private readonly term: Term,
    @Inject(TOKEN_RING) tokens: TokenRing,
  ) {
    this.clock = settings.clock;
    this.logger = settings.logger.child({ component: 'agent-gateway' });
    this.links = new LinkLog(this.logger, this.clock);
    const { joinTokensFile, joinTokensRequired } = settings;
    const needed = joinTokensFile !== undefined || joinTokensRequired === true;
    this.joinTokens = needed ? new JoinTokens(joinTokensFile, tokens) : undefined;
  }

  /** A new stream. */
  open(stream: GatewayStream): void {
    const session = new AgentSession(stream, this, this.settings);
    this.sessions.add(session);
    if (this.stopping) session.end(GrpcStatus.UNAVAILABLE, 'the server is stopping');
  }

  /** Calls `listener` with the peer whose hello was answered, or whose stream ended. */
  onAnswered(listener: (peer: string) => void): void {
    this.answered = listener;
  }

  /** Ends every stream: the gRPC server would wait for them for ever, and agents should dial anew at once. */
  beforeApplicationShutdown(): void {
    this.stopping = true;
    for (const session of this.sessions) session.end(GrpcStatus.UNAVAILABLE, 'the server is stopping');
    this.links.flush();
  }

  // ------------------------------------------------------------ commands to agents

  startShard(term: number, command: StartShardCommand): DispatchResult {
    return this.dispatch(term, command, (id) => startToWire(term, id, command));
  }

  stopShard(term: number, command: StopShardCommand, why: string): DispatchResult {
    return this.dispatch(term, command, (id) => stopToWire(term, id, command, why));
  }

  drainShard(term: number, command: DrainShardCommand): DispatchResult {
    // Nothing waits for what an agent makes of it, so it is not among the commands that keep a shard unsettled.
    return this.send(term, command.nodeId, (commandId) => drainToWire({ term, commandId, ...command }))
      .result;
  }

  connectedNodes(): readonly string[] {
    return [...this.holders.keys()];
  }

  openLog(nodeId: string, query: LogQuery, listener: (chunk: LogChunk) => void): (() => void) | undefined {
    return this.holders.get(nodeId)?.logs.ask(query, listener);
  }

  private dispatch(
    term: number,
    command: StartShardCommand | StopShardCommand,
    build: (commandId: string) => WireServerMessage,
  ): DispatchResult {
    const { result, commandId } = this.send(term, command.nodeId, build);
    if (result.sent)
      this.inventory.commandSent(command.nodeId, commandId, shardKey(command.shardId, command.generation));
    return result;
  }

  private send(
    term: number,
    nodeId: string,
    build: (commandId: string) => WireServerMessage,
  ): { readonly result: DispatchResult; readonly commandId: string } {
    const commandId = `${term}-${++this.commands}`;
    const unsent = (reason: Extract<DispatchResult, { sent: false }>['reason']) => ({
      result: { sent: false, reason } as const,
      commandId,
    });
    if (term < this.term.current()) return unsent('staleTerm');
    const holder = this.holders.get(nodeId);
    if (holder === undefined) return unsent('notConnected');
    if (!holder.session.send(build(commandId))) return unsent('backlogged');
    return { result: { sent: true }, commandId };
  }

  // ------------------------------------------------------------ what sessions tell

  hello(session: AgentSession, hello: Hello): void {
    this.judge(session, hello);
    this.answered(session.peer);
  }

  probe(session: AgentSession, hello: Hello): void {
    const verdict = this.verdictOf(session, hello);
    const holder = this.holders.get(hello.nodeId);
    const objection = verdict.ok && holder !== undefined ? this.objection(holder, session, hello) : undefined;
    if (!verdict.ok) this.answerNo(session, verdict.code, verdict.message);
    else if (objection !== undefined) this.answerNo(session, 'nodeIdTaken', objection);
    else {
      const held = holder === undefined ? {} : { holder: describeHolder(holder.session) };
      session.end(GrpcStatus.OK, 'answered', welcomeToWire({ ...this.welcomeFor(verdict.version), ...held }));
    }
    this.answered(session.peer);
  }

  private verdictOf(session: AgentSession, hello: Hello): HelloVerdict {
    return judgeHello(hello, {
      peerHost: session.peerHost,
      term: this.term.current(),
      joinTokens: this.joinTokens,
    });
  }

  private judge(session: AgentSession, hello: Hello): void {
    const verdict = this.verdictOf(session, hello);
    if (!verdict.ok) return this.refuse(session, hello, verdict.code, verdict.message);
    const holder = this.holders.get(hello.nodeId);
    if (holder !== undefined && !this.mayTakeOver(holder, session, hello)) return;
    this.followTerm(hello);
    this.warnOfSkew(hello);
    // The new holder is entered before the old stream ends, so that its close finds itself replaced and changes nothing.
    const entered: Holder = { session, logs: new LogRequests((message) => session.send(message)) };
    this.holders.set(hello.nodeId, entered);
    if (holder !== undefined) this.endReplaced(holder);
    this.welcomedAt.set(hello.nodeId, this.term.current());
    const back = this.inventory.connected(hello, verdict.address);
    if (back !== undefined) entered.back = back;
    this.counts.streamsTaken += 1;
    session.welcome(hello, welcomeToWire(this.welcomeFor(verdict.version)));
    this.links.connected(hello.nodeId, session.peer, hello.build);
    this.sink.nodeChanged(hello.nodeId);
  }

  private welcomeFor(protocolVersion: number): Welcome {
    return {
      term: this.term.current(),
      protocolVersion,
      build: this.settings.build,
      heartbeatIntervalMs: heartbeatMs(this.settings.unreachableAfterMs),
      silenceLimitMs: this.settings.silenceLimitMs ?? SILENCE_LIMIT_MS,
      maxLogTailBytes: LOG_TAIL_LIMIT_BYTES,
      maxMessageBytes: MESSAGE_LIMIT_BYTES,
      wallMs: this.clock.wallMs(),
      ...(this.settings.portRange === undefined ? {} : { portRange: this.settings.portRange }),
    };
  }

  message(session: AgentSession, message: AgentMessage): void {
    const nodeId = this.nodeOf(session);
    // A stream that was replaced is being ended; what it still says is old.
    if (nodeId === undefined) return;
    switch (message.kind) {
      case 'report':
        return this.takeReport(session, nodeId, message.report);
      case 'result':
        return this.takeResult(nodeId, message.result);
      case 'log':
        return this.holders.get(nodeId)?.logs.take(message.chunk);
      case 'pong':
        // Having arrived, it has proven life.
        return;
      case 'hello':
      case 'probe':
      case 'unknown':
        this.counts.messagesRefused += 1;
    }
  }

  malformed(session: AgentSession, problem: ProtocolError): void {
    this.counts.messagesRefused += 1;
    this.logger.warn(
      { node: session.hello?.nodeId, from: session.peer, field: problem.field, code: problem.code },
      'a message of an agent was not taken',
    );
  }

  failed(session: AgentSession, error: unknown): void {
    this.logger.error(
      { node: session.hello?.nodeId, from: session.peer, causes: errorChain(error) },
      'handling an agent failed',
    );
  }

  closed(session: AgentSession, reason: string): void {
    this.sessions.delete(session);
    this.answered(session.peer);
    const nodeId = this.nodeOf(session);
    if (nodeId === undefined) return;
    this.holders.get(nodeId)?.logs.closeAll('the agent is not connected any more');
    this.holders.delete(nodeId);
    this.counts.streamsLost += 1;
    this.inventory.disconnected(nodeId);
    this.links.disconnected(nodeId, session.peer, reason);
    if (this.stopping) return;
    this.sink.linkChanged(nodeId, { kind: 'closed', from: session.peer, reason });
    this.sink.nodeChanged(nodeId);
  }

  private takeReport(session: AgentSession, nodeId: string, report: NodeReport): void {
    const outcome = this.inventory.reported(nodeId, report);
    session.acknowledge(report.sequence);
    this.tellReturn(session, nodeId, report);
    if (outcome === 'changed') this.sink.nodeChanged(nodeId);
  }

  private tellReturn(session: AgentSession, nodeId: string, report: NodeReport): void {
    const holder = this.holders.get(nodeId);
    if (holder?.back === undefined) return;
    const engines = report.shards.filter(({ phase }) => phase !== 'exited').map(({ shardId }) => shardId);
    this.sink.linkChanged(nodeId, { kind: 'reconnected', from: session.peer, engines, ...holder.back });
    delete holder.back;
  }

  private takeResult(nodeId: string, result: CommandResult): void {
    const key = this.inventory.commandAnswered(nodeId, result.commandId);
    this.sink.commandAnswered(nodeId, { ...result, ...(key === undefined ? {} : { shardKey: key }) });
  }

  /** The node whose present holder the session is; undefined for one that was replaced or never taken. */
  private nodeOf(session: AgentSession): string | undefined {
    const nodeId = session.hello?.nodeId;
    return nodeId !== undefined && this.holders.get(nodeId)?.session === session ? nodeId : undefined;
  }

  // ------------------------------------------------------------ who may hold a node id

  private mayTakeOver(holder: Holder, session: AgentSession, hello: Hello): boolean {
    const objection = this.objection(holder, session, hello);
    if (objection === undefined) {
      const held = holder.session.hello?.instanceId;
      if (held !== undefined && held !== hello.instanceId) this.remember(hello.nodeId, held);
      return true;
    }
    // Perhaps the holder is dead and we do not know it yet; then the next try of this agent succeeds.
    holder.session.challenge();
    this.refuse(session, hello, 'nodeIdTaken', objection);
    return false;
  }

  /** Why the holder does not give way, in words; undefined when it does. */
  private objection(holder: Holder, session: AgentSession, hello: Hello): string | undefined {
    const held = holder.session.hello;
    if (held === undefined) return undefined;
    const verdict: ClaimVerdict = judgeClaim(
      { hello: held, peerHost: holder.session.peerHost },
      { hello, peerHost: session.peerHost },
      this.superseded.get(hello.nodeId) ?? new Set(),
    );
    const { peer } = holder.session;
    switch (verdict) {
      case 'sameAgent':
      case 'sameMachine':
        return undefined;
      case 'superseded':
        return `node id ${hello.nodeId} was taken over by a later agent on this machine (${peer}); two agents run with one node id`;
      case 'otherMachine':
        return `node id ${hello.nodeId} is held by ${peer}, and ${session.peerHost} is another machine; give each its own nodeId`;
      case 'otherDirectory':
        return `node id ${hello.nodeId} is held by an agent that is connected (${describeHolder(holder.session)}); stop it first, or give this one another --node-id`;
    }
  }

  private remember(nodeId: string, instanceId: string): void {
    const instances = this.superseded.get(nodeId) ?? new Set();
    instances.add(instanceId);
    const [oldest] = instances;
    if (instances.size > SUPERSEDED_MAX && oldest !== undefined) instances.delete(oldest);
    this.superseded.set(nodeId, instances);
  }

  private endReplaced(holder: Holder): void {
    holder.logs.closeAll('the agent has reconnected');
    holder.session.end(GrpcStatus.ABORTED, 'replaced by a newer stream of this node');
  }

  private refuse(session: AgentSession, hello: Hello, code: RefusalCode, message: string): void {
    this.counts.agentsRefused += 1;
    const times = this.inventory.agentRefused(hello.nodeId, session.peerHost, { code, message });
    // An agent goes on trying; once is news.
    if (times === 1)
      this.sink.linkChanged(hello.nodeId, { kind: 'refused', from: session.peer, code, message });
    const level = times % REFUSALS_PER_LINE === 1 ? 'warn' : 'debug';
    this.logger[level]({ node: hello.nodeId, from: session.peer, code, times }, `agent refused: ${message}`);
    this.answerNo(session, code, message);
  }

  private answerNo(session: AgentSession, code: RefusalCode, message: string): void {
    const refusal = {
      code,
      message,
      serverBuild: this.settings.build,
      serverProtocolVersion: PROTOCOL_VERSION,
    };
    session.end(REFUSAL_STATUS[code], message, refusalToWire(refusal));
  }

  /**
   * Another server's commands were obeyed here: our state is older than the cluster's, and ours would be refused. The
   * same number counts when we never gave it to this node: a server on a copy of our state counts as we do, and of two
   * with one number the agent would obey both.
   */
  private followTerm(hello: Hello): void {
    if (this.welcomedAt.get(hello.nodeId) === hello.highestTerm) return;
    const before = this.term.current();
    if (!this.term.raiseAbove(hello.highestTerm)) return;
    this.logger.warn(
      { node: hello.nodeId, obeyed: hello.highestTerm, before, now: this.term.current() },
      'an agent obeyed another server at our term or a higher one: this state was restored from an older backup, or a second server drives these agents',
    );
  }

  private warnOfSkew(hello: Hello): void {
    if (hello.wallMs === undefined) return;
    const skewMs = hello.wallMs - this.clock.wallMs();
    if (Math.abs(skewMs) < CLOCK_SKEW_WARN_MS) return;
    this.logger.warn({ node: hello.nodeId, skewMs }, "the node's clock differs from the server's");
  }
}

/** Who holds a node id, for people: process and host, address, state directory. */
function describeHolder({ hello, peer }: AgentSession): string {
  const on = hello?.hostname === undefined ? [] : [`on ${hello.hostname}`];
  const who = hello?.pid === undefined ? on : [`pid ${hello.pid}`, ...on];
  const where = hello?.stateDir === undefined ? [] : [`state directory ${hello.stateDir}`];
  return [...(who.length === 0 ? [] : [who.join(' ')]), `from ${peer}`, ...where].join(', ');
}

/** Heartbeats that fit into the silence a node is allowed: one or two may be late without anybody being missed. */
const HEARTBEATS_PER_SILENCE = 3;
const HEARTBEAT_MIN_MS = 100;

function heartbeatMs(unreachableAfterMs: number | undefined): number {
  if (unreachableAfterMs === undefined) return HEARTBEAT_INTERVAL_MS;
  const neededMs = Math.floor(unreachableAfterMs / HEARTBEATS_PER_SILENCE);
  return Math.max(HEARTBEAT_MIN_MS, Math.min(HEARTBEAT_INTERVAL_MS, neededMs));
}
