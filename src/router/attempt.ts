import type { LoadLease } from '../domain/balancing/endpoint-load.js';
import type { ReusePrediction } from '../domain/balancing/prefix-cache-model.js';
import type { AttemptFailure } from '../domain/request/retry.js';
import type { Clock } from '../shared/clock.js';
import type { EndpointState, RunningAttempt } from './endpoint-state.js';
import {
  ERROR_BODY_MAX_BYTES,
  engineErrorAnswer,
  errorEventAnswer,
  isEventStream,
  isErrorBody,
  isPage,
  statusInEvent,
  withoutKey,
  type EngineErrorAnswer,
} from './engine-answer.js';
import { oneRun, type ByteRuns } from './byte-runs.js';
import { UsageTail, usageOfAnswer, type Usage } from './bytes/usage.js';
import { EventStream } from './event-stream.js';
import type { AttemptTrace } from './request-trace.js';
import { isJsonType, mediaType } from './media-type.js';
import type { EngineRoute } from './routes.js';
import type { UpstreamHead } from './upstream/response-head.js';
import type { UpstreamError, UpstreamErrorKind } from './upstream/upstream-error.js';
import type { UpstreamExchange, UpstreamRequest, UpstreamSink } from './upstream/upstream-sink.js';

/** Bytes kept of an answer before its first event is complete (comments, mostly). Beyond it the answer is let go as it is. */
const PEEK_MAX_BYTES = 1024 * 1024;

/**
 * Where an attempt stands: `connecting`, `waiting` for a head, `peeking` for the first event of a stream, reading an
 * `error` body, `relaying` (events or plain bytes), in its `tail` (the client has all, the engine's end is still to come).
 */
export type AttemptPhase =
  'connecting' | 'waiting' | 'peeking' | 'error' | 'relayingEvents' | 'relayingBytes' | 'tail' | 'ended';

/** What is special about an attempt. */
export interface AttemptNature {
  /** It shows whether an endpoint that was taken out works again. */
  readonly trial: boolean;
  /** Uncached prompt tokens the engine had to compute before the first token: others' and its own. */
  readonly tokensAhead: number;
  /** What the endpoint was expected to have cached of the prompt; to be compared with what it reports. */
  readonly reuse: ReusePrediction | undefined;
  /** Id by which the engine must be asked to give up, where closing the connection is not enough. */
  readonly abortId: string | undefined;
}

/** The request an attempt belongs to. */
export interface AttemptOwner {
  readonly route: EngineRoute;
  /** Usage was asked for by the gateway alone. */
  readonly stripsUsage: boolean;
  readonly clock: Clock;
  connected(attempt: Attempt): void;
  /** The answer begins: true if it is this attempt's to give, false if another has won meanwhile. */
  begins(attempt: Attempt, head: UpstreamHead): boolean;
  /** Bytes for the client; false to pause. */
  relay(runs: ByteRuns): boolean;
  /** The whole body at once. */
  relayWhole(runs: ByteRuns): void;
  /** Whole events for the client; false to pause. */
  relayEvents(stream: EventStream): boolean;
  /** What is being relayed is an error under a 200. */
  engineErred(): void;
  /** The answer is complete for the client. */
  answered(): void;
  /** The attempt failed; before the answer began there may be another. */
  failed(
    attempt: Attempt,
    failure: AttemptFailure,
    answer: EngineErrorAnswer | undefined,
    detail: string,
  ): void;
  /** Asks the engine to give up what it does under `abortId`; settles soon in any case. */
  abortAtEngine(endpoint: EndpointState, abortId: string): Promise<void>;
  /** The attempt is over and its endpoint has room again. */
  released(attempt: Attempt): void;
}

/** One request sent to one engine. Counts itself in and out of its endpoint exactly once. */
export class Attempt implements UpstreamSink, RunningAttempt {
  rosterPlace = -1;
  phase: AttemptPhase = 'connecting';
  readonly sentAtMs: number;
  /** When the connection stood; when the request was sent, until then. */
  connectedAtMs: number;
  private upstream: UpstreamExchange | undefined;
  private head: UpstreamHead | undefined;
  private stream: EventStream | undefined;
  private tail: UsageTail | undefined;
  /** Of an answer that came whole in one read. */
  private answerUsage: Usage | undefined;
  private kept: Buffer[] = [];
  private keptBytes = 0;

  constructor(
    private readonly owner: AttemptOwner,
    readonly endpoint: EndpointState,
    private readonly lease: LoadLease,
    private readonly nature: AttemptNature,
    readonly record: AttemptTrace,
    nowMs: number,
  ) {
    this.sentAtMs = nowMs;
    this.connectedAtMs = nowMs;
    endpoint.began(this);
  }

  send(request: UpstreamRequest): void {
    const upstream = this.endpoint.upstream.send(request, this);
    this.upstream = upstream;
    this.record.reusedSocket = upstream.reusedSocket;
  }

  get trial(): boolean {
    return this.nature.trial;
  }

  get reuse(): ReusePrediction | undefined {
    return this.nature.reuse;
  }

  get tokensAhead(): number {
    return this.nature.tokensAhead;
  }

  get active(): boolean {
    return this.phase !== 'ended';
  }

  /** Whether the answer of this attempt is being given to the client. */
  get relaying(): boolean {
    return this.phase === 'relayingEvents' || this.phase === 'relayingBytes';
  }

  /** The client has a part of an event, and nothing may come in between. */
  get insideEvent(): boolean {
    return this.stream?.insideEvent === true;
  }

  /** Tokens as the engine reported them, as far as its answer has come. */
  get usage(): Usage | undefined {
    if (this.stream !== undefined) return this.stream.usage;
    return this.tail === undefined ? this.answerUsage : this.tail.read();
  }

  resume(): void {
    this.upstream?.resume();
  }

  /** Stops at once, without a word: the client left, another attempt won, or a deadline struck. */
  cancel(outcome: string): void {
    if (!this.active) return;
    this.drop();
    this.end(outcome);
  }

  /** A deadline struck. */
  expire(kind: 'connect_timeout' | 'first_token_timeout' | 'idle_timeout'): void {
    if (!this.active || this.phase === 'tail') return;
    // What was wrong is known; only the rest of the words did not come.
    if (this.phase === 'error') return this.errorComplete();
    this.fail({ kind }, undefined, kind);
  }

  abandon(reason: 'shutting_down' | 'upstream_aborted'): void {
    if (!this.active) return;
    if (this.phase === 'tail') return this.cancel('ok');
    const committed = this.relaying;
    const failure: AttemptFailure =
      reason === 'shutting_down' && committed ? { kind: 'shutting_down' } : { kind: 'reset_in_response' };
    this.fail(failure, undefined, `the endpoint was withdrawn: ${reason}`);
  }

  // ---------------------------------------------------------------- what the engine does

  onConnected(): void {
    this.phase = 'waiting';
    this.connectedAtMs = this.owner.clock.monotonicMs();
    this.owner.connected(this);
  }

  onHead(head: UpstreamHead): void {
    this.head = head;
    this.record.status = head.status;
    this.record.headAfterMs = this.owner.clock.monotonicMs() - this.connectedAtMs;
    const { status } = head;
    if (status >= 300 && status < 400 && status !== 304) {
      this.fail({ kind: 'redirect' }, undefined, `status ${status}`);
    } else if (status >= 400) {
      this.phase = 'error';
    } else if (isPage(head)) {
      this.fail({ kind: 'protocol_error' }, undefined, 'the answer is a page for browsers');
    } else if (isEventStream(head)) {
      this.stream = new EventStream(this.owner.route, this.owner.stripsUsage);
      this.phase = 'peeking';
    }
  }

  onData(slab: Buffer, from: number, to: number): boolean {
    this.endpoint.showedLife(this.owner.clock.monotonicMs());
    switch (this.phase) {
      case 'waiting':
        return this.firstBytes(slab, from, to);
      case 'relayingBytes':
        this.tail?.push(slab, from, to);
        return this.owner.relay(oneRun(slab, from, to));
      case 'peeking':
        return this.peek(slab, from, to);
      case 'relayingEvents':
        return this.relayEvents(slab, from, to);
      case 'error':
        return this.keepError(slab, from, to);
      case 'connecting':
      case 'tail':
      case 'ended':
        return true;
    }
  }

  onEnd(): void {
    switch (this.phase) {
      case 'relayingBytes':
        return this.endOfBytes();
      case 'relayingEvents':
        return this.endOfEvents();
      case 'waiting':
        return this.endWithoutBody();
      case 'peeking':
        return this.endWhilePeeking();
      case 'error':
        return this.errorComplete();
      case 'tail':
        return this.end('ok');
      case 'connecting':
      case 'ended':
        return;
    }
  }

  onError(error: UpstreamError): void {
    if (this.phase === 'ended') return;
    if (this.phase === 'tail') return this.end('ok');
    // An error answer that breaks off still says what was wrong.
    if (this.phase === 'error' && error.kind === 'reset') return this.errorComplete();
    const cause = error.cause instanceof Error ? `: ${error.cause.message}` : '';
    this.fail(failureOf(error.kind, error.reusedSocket), undefined, `${error.kind}${cause}`);
  }

  // ---------------------------------------------------------------- reading the answer

  private firstBytes(slab: Buffer, from: number, to: number): boolean {
    const { head } = this;
    if (head === undefined || !this.begins(head)) return true;
    this.phase = 'relayingBytes';
    const json = isJsonType(mediaType(head.contentType));
    const whole = head.framing === 'length' && head.contentLength === to - from;
    if (json && whole) this.answerUsage = usageOfAnswer(slab, from, to);
    else if (json) {
      this.tail = new UsageTail();
      this.tail.push(slab, from, to);
    }
    if (json && isErrorBody(slab, from, to, whole)) this.owner.engineErred();
    // The whole body in one read, as most answers come: it leaves with its head in one write.
    if (whole) {
      this.owner.relayWhole(oneRun(slab, from, to));
      return true;
    }
    return this.owner.relay(oneRun(slab, from, to));
  }

  private begins(head: UpstreamHead): boolean {
    const now = this.owner.clock.monotonicMs();
    this.lease.prefilled(now);
    this.endpoint.worked(now);
    return this.owner.begins(this, head);
  }

  private peek(slab: Buffer, from: number, to: number): boolean {
    const { stream } = this;
    if (stream === undefined) return true;
    stream.push(slab, from, to);
    const overdue = this.keptBytes + stream.runs.length > PEEK_MAX_BYTES;
    if (stream.events === 0 && !stream.done && !overdue && !stream.insideEvent) {
      this.keepRuns(stream.runs);
      return true;
    }
    return this.firstEvent(stream);
  }

  private firstEvent(stream: EventStream): boolean {
    const { head } = this;
    if (stream.startsWithError && stream.error !== undefined) {
      const data = withoutKey(Buffer.from(stream.error), this.endpoint.endpoint.apiKey).toString();
      const failure: AttemptFailure = { kind: 'error_event', status: statusInEvent(data) };
      this.fail(failure, errorEventAnswer(data), 'the first event was an error');
      return true;
    }
    if (head === undefined || !this.begins(head)) return true;
    this.phase = 'relayingEvents';
    if (this.keptBytes > 0) this.prependKept(stream);
    return this.relayWhole(stream);
  }

  /** The first event may be the last, and without the blank line behind it. */
  private endWhilePeeking(): void {
    const { stream } = this;
    if (stream === undefined) return;
    stream.end();
    if (!stream.startsWithError && stream.cutOff) {
      return this.fail({ kind: 'reset_in_response' }, undefined, 'the stream ended before the answer did');
    }
    this.firstEvent(stream);
    if (!this.active) return;
    this.end('ok');
    this.owner.answered();
  }

  private relayEvents(slab: Buffer, from: number, to: number): boolean {
    const { stream } = this;
    if (stream === undefined) return true;
    stream.push(slab, from, to);
    return this.relayWhole(stream);
  }

  private relayWhole(stream: EventStream): boolean {
    if (stream.tokens > 0) this.lease.generated(stream.tokens);
    if (stream.done) this.phase = 'tail';
    return this.owner.relayEvents(stream) || stream.done;
  }

  private endOfBytes(): void {
    const { head, tail } = this;
    // The end of the connection is the only end such a body has, and a crash looks the same.
    const unannounced = head?.framing === 'close' && head.get('content-encoding') === undefined;
    if (unannounced && tail?.closes === false) {
      return this.fail({ kind: 'reset_in_response' }, undefined, 'the answer ended before its JSON did');
    }
    this.endpoint.worked(this.owner.clock.monotonicMs());
    this.end('ok');
    this.owner.answered();
  }

  private endOfEvents(): void {
    const { stream } = this;
    if (stream === undefined) return;
    if (stream.insideEvent) {
      return this.fail({ kind: 'reset_in_response' }, undefined, 'the stream ended inside an event');
    }
    stream.end();
    // A clean end without the answer's own last event is taken for a whole answer by most clients.
    if (stream.cutOff) {
      return this.fail({ kind: 'reset_in_response' }, undefined, 'the stream ended before the answer did');
    }
    this.owner.relayEvents(stream);
    this.end('ok');
    this.owner.answered();
  }

  /** A head without a body is an answer all the same (204). */
  private endWithoutBody(): void {
    const { head } = this;
    if (head === undefined) return;
    if (head.framing === 'close') {
      return this.fail({ kind: 'reset_in_response' }, undefined, 'the connection ended behind the head');
    }
    if (!this.begins(head)) return;
    this.end('ok');
    this.owner.answered();
  }

  private keepError(slab: Buffer, from: number, to: number): boolean {
    this.keep(slab, from, Math.min(to, from + ERROR_BODY_MAX_BYTES - this.keptBytes));
    if (this.keptBytes < ERROR_BODY_MAX_BYTES) return true;
    // Nobody reads more; the connection is not worth waiting for its end.
    this.upstream?.abort();
    this.errorComplete();
    return true;
  }

  private errorComplete(): void {
    if (this.head === undefined) return;
    const { head, endpoint, owner } = this;
    const answer = engineErrorAnswer(
      head,
      Buffer.concat(this.kept),
      endpoint.endpoint.apiKey,
      owner.clock.wallMs(),
    );
    const { status, retryAfterSeconds } = answer;
    const retryAfterMs = retryAfterSeconds === undefined ? undefined : retryAfterSeconds * 1000;
    this.fail({ kind: 'status', status, retryAfterMs }, answer, `status ${status}`);
  }

  private keep(bytes: Buffer, from: number, to: number): void {
    if (to <= from) return;
    this.kept.push(Buffer.from(bytes.subarray(from, to)));
    this.keptBytes += to - from;
  }

  private keepRuns(runs: ByteRuns): void {
    if (runs.length === 0) return;
    this.kept.push(runs.toBuffer());
    this.keptBytes += runs.length;
  }

  private prependKept(stream: EventStream): void {
    const bytes = Buffer.concat([...this.kept, stream.runs.toBuffer()]);
    stream.runs.clear().add(bytes, 0, bytes.length);
    this.kept = [];
    this.keptBytes = 0;
  }

  // ---------------------------------------------------------------- the end

  private fail(failure: AttemptFailure, answer: EngineErrorAnswer | undefined, detail: string): void {
    this.drop();
    // The engine has said itself that the answer failed; that it then breaks off is no news, and a second error would be.
    if (this.phase === 'relayingEvents' && this.stream?.saidError === true && !this.insideEvent) {
      this.end('ok');
      return this.owner.answered();
    }
    this.close(failure.kind === 'status' ? `status_${failure.status}` : failure.kind);
    // The blame must be known before the room this leaves is given to somebody else.
    this.owner.failed(this, failure, answer, detail);
    this.owner.released(this);
  }

  /** Closes the engine's connection, and before that says so where the engine needs it. */
  private drop(): void {
    const { upstream, phase } = this;
    const { abortId } = this.nature;
    if (upstream === undefined || !upstream.active) return;
    if (abortId === undefined || phase === 'connecting' || phase === 'tail') return upstream.abort();
    void this.owner.abortAtEngine(this.endpoint, abortId).then(() => upstream.abort());
  }

  private end(outcome: string): void {
    this.close(outcome);
    this.owner.released(this);
  }

  private close(outcome: string): void {
    this.phase = 'ended';
    this.record.outcome = outcome;
    this.lease.release();
    this.endpoint.ended(this);
  }
}

function failureOf(kind: UpstreamErrorKind, reusedSocket: boolean): AttemptFailure {
  switch (kind) {
    case 'connect_refused':
    case 'connect_timeout':
    case 'connect_failed':
    case 'protocol_error':
      return { kind };
    case 'reset_before_response':
      return { kind, reusedSocket };
    case 'reset':
    case 'aborted':
      return { kind: 'reset_in_response' };
  }
}
