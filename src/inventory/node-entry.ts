import type { GpuReport, NodeLiveness, NodeView, SchedulingIntent } from '../domain/cluster.js';
import type { Hello, NodeReport } from '../agent-protocol/messages.js';
import { keep } from './keep.js';
import {
  decideAlike,
  gpusNotYetReported,
  gpusWithMissing,
  mergeReport,
  rememberGpu,
  type RememberedGpu,
} from './merge-report.js';

/** What is stored of a node: who it is. What it does comes back with its reports. */
export interface StoredNode {
  readonly id: string;
  readonly address: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly hostname?: string;
  readonly machineId?: string;
  readonly bootId?: string;
  readonly agentVersion?: string;
  readonly gpus: readonly RememberedGpu[];
  readonly firstSeenWallMs: number;
  /** Wall time of a report, ms, at most {@link LAST_SEEN_STEP_MS} before the last one; for people. */
  readonly lastSeenWallMs?: number;
}

/** A report is only now and then worth a write: "last seen" is read after a restart, where minutes do not matter. */
export const LAST_SEEN_STEP_MS = 10 * 60_000;

/** How an operator sees a node nobody has decided anything about. */
export const NO_INTENT: SchedulingIntent = { target: 'schedulable', actor: '', atWallMs: 0, sequence: 0 };

/** A new stream compared with the one before it. */
export interface Reconnection {
  readonly sameProcess: boolean;
  readonly sameBoot: boolean;
  /** Time without a stream, ms; undefined when the new one came before the old one ended. */
  readonly awayMs?: number;
}

/** What a report did. */
export type ReportOutcome =
  /** Something a decision could depend on is different. */
  | 'changed'
  | 'unchanged'
  /** Older than what is known already: dropped. */
  | 'stale';

interface SentCommand {
  readonly shardKey: string;
  readonly stream: number;
  answered: boolean;
}

/** One node: stored identity, last report, open stream. */
export class NodeEntry {
  private stored: StoredNode;
  private report: NodeReport | undefined;
  private instanceId: string | undefined;
  private streamSinceMs: number | undefined;
  private lastReportMs: number | undefined;
  /** Counts the streams, to know which one a command went out on. */
  private stream = 0;
  /** When the last stream ended; undefined before the first did. */
  private streamEndedMs: number | undefined;
  private reported = false;
  private liveness: NodeLiveness = 'unseen';
  private livenessSinceMs: number;
  private livenessReason: string | undefined;
  /** Commands by id: sent on which stream, and whether answered. */
  private readonly unsettled = new Map<string, SentCommand>();
  private readonly missingSinceWallMs = new Map<string, number>();
  private cached: NodeView | undefined;
  /** Whether `stored` differs from what is on disk. */
  dirty: boolean;

  constructor(
    stored: StoredNode,
    private intent: SchedulingIntent,
    nowMs: number,
    dirty: boolean,
  ) {
    this.stored = stored;
    this.livenessSinceMs = nowMs;
    this.dirty = dirty;
  }

  get record(): StoredNode {
    return this.stored;
  }

  get connected(): boolean {
    return this.streamSinceMs !== undefined;
  }

  /** Returns what this stream is to the one before it; undefined for the first of this server life. */
  connect(hello: Hello, address: string, nowMs: number): Reconnection | undefined {
    const back = this.stream === 0 ? undefined : this.reconnection(hello, nowMs);
    if (this.instanceId !== hello.instanceId) {
      this.instanceId = hello.instanceId;
      // A new agent process counts its reports from the start; comparing with the old one's would drop them all.
      if (this.report !== undefined) this.report = { ...this.report, sequence: -1 };
    }
    this.streamSinceMs = nowMs;
    this.stream += 1;
    this.learn({
      address,
      labels: hello.labels,
      agentVersion: hello.build,
      ...(hello.hostname === undefined ? {} : { hostname: hello.hostname }),
      ...(hello.machineId === undefined ? {} : { machineId: hello.machineId }),
      ...(hello.bootId === undefined ? {} : { bootId: hello.bootId }),
    });
    this.cached = undefined;
    return back;
  }

  private reconnection(hello: Hello, nowMs: number): Reconnection {
    const ended = this.streamSinceMs === undefined ? this.streamEndedMs : undefined;
    return {
      sameProcess: this.instanceId === hello.instanceId,
      sameBoot: hello.bootId === undefined || hello.bootId === this.stored.bootId,
      ...(ended === undefined ? {} : { awayMs: nowMs - ended }),
    };
  }

  disconnect(nowMs: number): void {
    this.streamSinceMs = undefined;
    this.streamEndedMs = nowMs;
    this.cached = undefined;
  }

  takeReport(report: NodeReport, nowMs: number, nowWallMs: number): ReportOutcome {
    if (this.report !== undefined && report.sequence <= this.report.sequence) return 'stale';
    const before = this.report;
    const now = keep(before, mergeReport(before, report));
    this.report = now;
    this.lastReportMs = nowMs;
    // In either direction: a wall clock that was set must not leave a time in the future standing.
    if (Math.abs(nowWallMs - (this.stored.lastSeenWallMs ?? 0)) >= LAST_SEEN_STEP_MS)
      this.learn({ lastSeenWallMs: nowWallMs });
    if (now.complete) this.settle(now, before, nowWallMs);
    this.cached = undefined;
    return before !== undefined && decideAlike(before, now) ? 'unchanged' : 'changed';
  }

  /** A complete report shows the effect of every command that was answered before it. */
  private settle(report: NodeReport, before: NodeReport | undefined, nowWallMs: number): void {
    for (const [commandId, command] of this.unsettled) {
      // An agent drops what an old stream left unfinished, so a full report on a later stream settles it. A command of
      // this stream may have crossed with the report: only its answer says that the report came after it.
      if (command.answered || command.stream !== this.stream) this.unsettled.delete(commandId);
    }
    // The devices of a complete report were remembered with it.
    const known = this.reported && before?.complete === true && before.gpus === report.gpus;
    this.reported = true;
    if (!known) this.rememberGpus(report, nowWallMs);
  }

  private rememberGpus(report: NodeReport, nowWallMs: number): void {
    const known = new Map(this.stored.gpus.map((gpu) => [gpu.uuid, gpu]));
    for (const gpu of report.gpus) {
      known.set(gpu.uuid, rememberGpu(gpu));
      this.missingSinceWallMs.delete(gpu.uuid);
    }
    const seen = new Set(report.gpus.map((gpu) => gpu.uuid));
    for (const uuid of known.keys()) {
      if (!seen.has(uuid) && !this.missingSinceWallMs.has(uuid)) this.missingSinceWallMs.set(uuid, nowWallMs);
    }
    this.learn({ gpus: keep(this.stored.gpus, [...known.values()]) });
  }

  private learn(facts: Partial<StoredNode>): void {
    if (!Object.entries(facts).some(([name, fact]) => isNews(this.stored[name as keyof StoredNode], fact)))
      return;
    this.stored = { ...this.stored, ...facts };
    this.dirty = true;
  }

  commandSent(commandId: string, shardKey: string): void {
    this.unsettled.set(commandId, { shardKey, stream: this.stream, answered: false });
    this.cached = undefined;
  }

  /** The shard key the answered command was about. */
  commandAnswered(commandId: string): string | undefined {
    const command = this.unsettled.get(commandId);
    if (command !== undefined) command.answered = true;
    return command?.shardKey;
  }

  setLiveness(liveness: NodeLiveness, reason: string | undefined, nowMs: number): void {
    if (liveness !== this.liveness) this.livenessSinceMs = nowMs;
    this.liveness = liveness;
    this.livenessReason = reason;
    this.cached = undefined;
  }

  setIntent(intent: SchedulingIntent): void {
    this.intent = intent;
    this.cached = undefined;
  }

  /** Before the first full report what is missing from a report proves nothing. */
  private gpus(): readonly GpuReport[] {
    const reported = this.report?.gpus ?? [];
    const { gpus } = this.stored;
    if (this.reported)
      return gpusWithMissing(reported, new Map(gpus.map((gpu) => [gpu.uuid, gpu])), this.missingSinceWallMs);
    const seen = new Set(reported.map((gpu) => gpu.uuid));
    return [...reported, ...gpusNotYetReported(gpus.filter((gpu) => !seen.has(gpu.uuid)))];
  }

  view(): NodeView {
    return (this.cached ??= this.buildView());
  }

  private buildView(): NodeView {
    const { stored, report } = this;
    const optional = {
      livenessReason: this.livenessReason,
      hostname: stored.hostname,
      agentVersion: stored.agentVersion,
      bootId: stored.bootId,
      lastReportMs: this.lastReportMs,
      lastSeenWallMs: stored.lastSeenWallMs,
    };
    return {
      id: stored.id,
      liveness: this.liveness,
      livenessSinceMs: this.livenessSinceMs,
      reported: this.reported,
      streamSinceMs: this.streamSinceMs,
      unsettled: [...new Set([...this.unsettled.values()].map((command) => command.shardKey))],
      labels: stored.labels,
      address: stored.address,
      engines: report?.engines ?? [],
      gpus: this.gpus(),
      shards: report?.shards ?? [],
      portsTaken: report?.portsTaken ?? [],
      weightsPresent: report?.weightsPresent ?? [],
      intent: this.intent,
      conditions: report?.conditions ?? [],
      ...(withoutUndefined(optional) as Partial<NodeView>),
    };
  }
}

/** Every report tells all of it again, so equal texts and numbers are not even looked into. */
function isNews(known: unknown, fact: unknown): boolean {
  return known !== fact && (typeof fact !== 'object' || JSON.stringify(known) !== JSON.stringify(fact));
}

function withoutUndefined(values: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined));
}
