import { status as GrpcStatus } from '@grpc/grpc-js';
import type { AgentMessage, Hello } from '../agent-protocol/messages.js';
import type { ProtocolError } from '../agent-protocol/checks.js';
import { SILENCE_LIMIT_MS, type GatewayStream } from '../agent-protocol/proto.js';
import { parseAgentMessage } from '../agent-protocol/to-domain.js';
import { ackToWire, pingToWire } from '../agent-protocol/to-wire.js';
import type { WireAgentMessage, WireServerMessage } from '../agent-protocol/wire.js';
import type { Clock, Timer } from '../shared/clock.js';
import { peerHost } from './node-address.js';
import { Outbox } from './outbox.js';

/** Time from opening a stream to its hello, ms. */
const HELLO_LIMIT_MS = 10_000;
/** Time a holder of a contested node id has to answer a ping, ms. */
const CHALLENGE_LIMIT_MS = 4_000;
/** A timer this much late means that we slept: messages may lie unread in the kernel, ms. */
const OWN_PAUSE_MS = 1_000;

/** What a session tells its owner. */
export interface SessionOwner {
  /** The first message; the owner welcomes or refuses. */
  hello(session: AgentSession, hello: Hello): void;
  /** In place of a hello: the owner answers as it would answer one, and ends the stream. */
  probe(session: AgentSession, hello: Hello): void;
  /** A message after the welcome. */
  message(session: AgentSession, message: AgentMessage): void;
  /** A message that could not be taken; the stream goes on. */
  malformed(session: AgentSession, problem: ProtocolError): void;
  /** The handler itself failed; the stream is ended. */
  failed(session: AgentSession, error: unknown): void;
  /** Told exactly once, however the stream ended. */
  closed(session: AgentSession, reason: string): void;
}

export interface SessionSettings {
  readonly clock: Clock;
  /** A stream without any message for this long is dead. */
  readonly silenceLimitMs?: number;
  readonly helloLimitMs?: number;
}

/**
 * One stream of one agent, from its first byte to its end. Everything that can go wrong here ends this stream and
 * nothing else: an exception that escaped a stream handler would end the process.
 */
export class AgentSession {
  readonly peer: string;
  readonly peerHost: string;
  /** Set once the owner has welcomed the agent. */
  hello: Hello | undefined;
  private readonly outbox: Outbox;
  private readonly silenceLimitMs: number;
  private state: 'awaitingHello' | 'judging' | 'open' | 'closed' = 'awaitingHello';
  private lastHeardMs: number;
  private timer: Timer;
  private nonce = 0;

  constructor(
    private readonly stream: GatewayStream,
    private readonly owner: SessionOwner,
    private readonly settings: SessionSettings,
  ) {
    this.peer = stream.getPeer();
    this.peerHost = peerHost(this.peer);
    this.silenceLimitMs = settings.silenceLimitMs ?? SILENCE_LIMIT_MS;
    this.lastHeardMs = settings.clock.monotonicMs();
    this.outbox = new Outbox(stream);
    // All of these may come, in any order and more than once; on a cancel `close` was seen before `cancelled`.
    stream.on('error', (error: Error) => this.close(`stream error: ${error.message}`));
    stream.on('cancelled', () => this.close('cancelled by the agent'));
    stream.on('close', () => this.close('connection closed'));
    stream.on('end', () => this.close('ended by the agent'));
    stream.on('data', (message: WireAgentMessage) => this.take(message));
    this.timer = settings.clock.setTimer(settings.helloLimitMs ?? HELLO_LIMIT_MS, () => this.noHello());
    if (stream.cancelled) this.close('cancelled by the agent');
  }

  get isOpen(): boolean {
    return this.state === 'open';
  }

  /** Accepts the agent: `welcome` goes out and messages are taken from now on. */
  welcome(hello: Hello, welcome: WireServerMessage): void {
    this.hello = hello;
    this.state = 'open';
    this.timer.cancel();
    this.watchSilence();
    this.outbox.send(welcome);
  }

  /** False when the agent takes no more messages for now. */
  send(message: WireServerMessage): boolean {
    return this.state === 'open' && this.outbox.send(message);
  }

  acknowledge(sequence: number): void {
    this.outbox.sendLatest('ack', ackToWire(sequence));
  }

  /** Somebody else claims the node id: the holder proves that it lives, or gives the id up soon. */
  challenge(): void {
    const askedMs = this.settings.clock.monotonicMs();
    this.outbox.sendLatest('ping', pingToWire(++this.nonce));
    this.settings.clock.setTimer(CHALLENGE_LIMIT_MS, () => {
      if (this.lastHeardMs < askedMs) this.end(GrpcStatus.UNAVAILABLE, 'no answer to a ping');
    });
  }

  /** Ends the stream with a status; `last` is sent before it. Harmless when it has ended already. */
  end(code: GrpcStatus, details: string, last?: WireServerMessage): void {
    if (this.state === 'closed') return;
    // Whatever waits in the outbox is of no use to an agent that is being sent away.
    this.outbox.close();
    if (last !== undefined) this.stream.write(last);
    this.close(details);
    if (code === GrpcStatus.OK) this.stream.end();
    // grpc-js ends the call with this status after what was written; our own listener above finds it closed already.
    else this.stream.emit('error', Object.assign(new Error(details), { code, details }));
  }

  private take(wire: WireAgentMessage): void {
    if (this.state === 'closed') return;
    this.lastHeardMs = this.settings.clock.monotonicMs();
    try {
      this.handle(wire);
    } catch (error) {
      this.owner.failed(this, error);
      this.end(GrpcStatus.INTERNAL, 'the server failed to handle a message');
    }
  }

  private handle(wire: WireAgentMessage): void {
    const parsed = parseAgentMessage(wire);
    if (this.state === 'awaitingHello') {
      this.state = 'judging';
      if (parsed.ok && parsed.message.kind === 'hello') this.owner.hello(this, parsed.message.hello);
      else if (parsed.ok && parsed.message.kind === 'probe') this.owner.probe(this, parsed.message.hello);
      else {
        const why = parsed.ok
          ? `the first message is a ${parsed.message.kind}, not a hello`
          : parsed.problem.message;
        if (!parsed.ok) this.owner.malformed(this, parsed.problem);
        this.end(GrpcStatus.INVALID_ARGUMENT, why);
      }
      return;
    }
    if (this.state !== 'open') return;
    if (parsed.ok) this.owner.message(this, parsed.message);
    else this.owner.malformed(this, parsed.problem);
  }

  private noHello(): void {
    this.end(GrpcStatus.DEADLINE_EXCEEDED, 'no hello came');
  }

  /** Our own heartbeat deadline: TCP alone would notice a pulled cable after a quarter of an hour. */
  private watchSilence(): void {
    const { clock } = this.settings;
    const delayMs = Math.max(0, this.lastHeardMs + this.silenceLimitMs - clock.monotonicMs());
    const dueMs = clock.monotonicMs() + delayMs;
    this.timer = clock.setTimer(delayMs, () => {
      const nowMs = clock.monotonicMs();
      if (nowMs - dueMs > OWN_PAUSE_MS) {
        // We slept, and what the agent sent meanwhile is still unread: read first, judge then.
        this.lastHeardMs = Math.max(this.lastHeardMs, nowMs - this.silenceLimitMs + OWN_PAUSE_MS);
      }
      if (nowMs - this.lastHeardMs < this.silenceLimitMs) this.watchSilence();
      else this.end(GrpcStatus.DEADLINE_EXCEEDED, `silent for ${Math.round(this.silenceLimitMs / 1000)} s`);
    });
  }

  private close(reason: string): void {
    if (this.state === 'closed') return;
    this.state = 'closed';
    this.timer.cancel();
    this.outbox.close();
    try {
      this.owner.closed(this, reason);
    } catch (error) {
      this.owner.failed(this, error);
    }
  }
}
