/**
 * The nouns of the cluster as plain data. Every other room of `src/domain` and every shell speaks in these types.
 *
 * Two kinds of facts never mix: what is *wanted and decided* (models, intents, replica records: stored) and
 * what was *seen* (nodes' reports: never stored, it comes back from the agents). A field that may be unknown
 * is `undefined`, never zero: no decision is taken on a fact nobody reported.
 */
import type { EngineKind } from './model-spec.js';

// ---------------------------------------------------------------- seen: nodes, GPUs, shards

export type GpuVendor = 'nvidia' | 'amd' | 'static' | 'unknown';

/** A process on a GPU that is none of ours. */
export interface ForeignProcess {
  readonly pid: number;
  readonly name?: string;
  readonly memoryBytes?: number;
}

/** A device as its node last reported it. */
export interface GpuReport {
  /** Stable identity of the device; assignments are made by it, never by index. */
  readonly uuid: string;
  readonly type: string;
  readonly vendor: GpuVendor;
  /** PCI bus id, when known. */
  readonly busId?: string;
  readonly memoryTotalBytes?: number;
  /** Memory in use by anyone, bytes; undefined while unknown. */
  readonly memoryUsedBytes?: number;
  /** Processes on the device that belong to no shard of ours. */
  readonly foreign: readonly ForeignProcess[];
  readonly health: GpuHealth;
  /** UUIDs of devices linked by NVLink (or the vendor's like). */
  readonly linkedTo: readonly string[];
}

/** Whether new work may use a device, with what was seen. */
export interface GpuHealth {
  /** `unknown`: the agent has not reported to this server yet. */
  readonly state: 'healthy' | 'suspect' | 'excluded' | 'unknown';
  /** Code of the finding, e.g. `xid_79`, `not_reported`, `remap_failure`; undefined when healthy. */
  readonly reason?: string;
  /** The evidence in words, as found. */
  readonly evidence?: string;
  /** Wall time of the finding, ms, for people. */
  readonly sinceWallMs?: number;
  /** What would clear it, in words. */
  readonly clearedBy?: string;
}

export const SHARD_PHASES = [
  'waitingForGpu',
  'starting',
  'downloading',
  'loading',
  'compiling',
  'probing',
  'ready',
  'unhealthy',
  'stopping',
  'exited',
  'unknown',
] as const;
/**
 * Where a shard is in its life, as its agent sees it. `unknown` also stands for a phase a newer agent knows and we do not.
 * `exited` is the agent's word that the whole process group is gone *and* all its GPUs are empty; until then a dead or dying
 * shard is `stopping`. GPUs are given to others on that word alone.
 */
export type ShardPhase = (typeof SHARD_PHASES)[number];

export const VERDICTS = [
  'outOfMemory',
  'portTaken',
  'badFlag',
  'missingWeights',
  'gatedRepository',
  'ncclTimeout',
  'xid',
  'illegalInstruction',
  'diskFull',
  'binaryMissing',
  'notAllowed',
  'modelMismatch',
  'noProgress',
  'gpuNotEmpty',
  'peerRankExited',
  'signalled',
  'crashed',
  'hung',
  'exitedCleanly',
  'stopped',
  'unknown',
] as const;
/** Why a shard ended or cannot start, read from its exit, its log and the agent's own checks. */
export type Verdict = (typeof VERDICTS)[number];

/** Verdicts that trying again on the same node cannot change: the profile is parked there at once. */
export const PERMANENT_VERDICTS: ReadonlySet<Verdict> = new Set<Verdict>([
  'badFlag',
  'missingWeights',
  'gatedRepository',
  'binaryMissing',
  'notAllowed',
  'modelMismatch',
  'illegalInstruction',
]);

/**
 * Of the permanent ones, those that are a matter of the node, not of the model: another node is worth trying at once. The rest
 * would fail in the same way everywhere, so they tour the cluster slowly.
 */
export const NODE_VERDICTS: ReadonlySet<Verdict> = new Set<Verdict>([
  'missingWeights',
  'binaryMissing',
  'notAllowed',
  'illegalInstruction',
]);

/** One engine process group on one node, as its agent last reported it. */
export interface ShardReport {
  readonly shardId: string;
  readonly replicaId: string;
  readonly model: string;
  readonly profile: string;
  readonly generation: number;
  readonly rank: number;
  readonly phase: ShardPhase;
  readonly pid?: number;
  readonly gpuUuids: readonly string[];
  readonly ports: ShardPorts;
  /** Progress of loading in words, e.g. `downloading 3.1 of 18.4 GiB`. */
  readonly progress?: string;
  /** Exit code, when it ended by itself. */
  readonly exitCode?: number;
  /** Signal that ended it, e.g. `SIGKILL`. */
  readonly exitSignal?: string;
  readonly verdict?: Verdict;
  /** One line for people, made on the agent. */
  readonly message?: string;
  /** Redacted, cleaned tail of the log; only for failed or asked-for shards. */
  readonly logTail?: string;
  /** Largest memory seen on one of its GPUs, bytes. */
  readonly memoryPeakBytes?: number;
  /** Start to Ready, ms; present once Ready. */
  readonly loadMs?: number;
  /** Milliseconds in the present phase, on the agent's monotonic clock. */
  readonly phaseAgeMs?: number;
  /** Digest given in the start command; lets a server that lost its record take the shard over instead of stopping it. */
  readonly specDigest?: string;
}

/** Ports of one shard, chosen by the control plane. */
export interface ShardPorts {
  /** HTTP of rank 0, or the RPC port of a worker rank. */
  readonly http: number;
  /** Rendezvous port of the gang, the same on every rank; undefined for single-shard replicas. */
  readonly rendezvous?: number;
}

/** An engine the node's agent offers. */
export interface EngineOffer {
  readonly kind: EngineKind;
  readonly version?: string;
  /** Why the engine cannot be used although configured, e.g. binary missing. */
  readonly unavailable?: string;
}

/** Liveness of a node in the eyes of the control plane. */
export type NodeLiveness =
  /** Known from the store, not seen since this server started. */
  | 'unseen'
  | 'connected'
  /** Its stream is gone; nothing new is placed, its replicas keep serving while the data path proves life. */
  | 'unreachable'
  /** Given up: replacements start. */
  | 'lost'
  /** Comes and goes too often: connected, but nothing new is placed until it has been steady. */
  | 'flapping';

/** What an operator wants of a node's schedule. Stored before anything moves. */
export interface SchedulingIntent {
  readonly target: 'schedulable' | 'cordoned' | 'drained';
  readonly actor: string;
  readonly reason?: string;
  readonly atWallMs: number;
  /** Only this device, when a single GPU is drained. */
  readonly gpuUuid?: string;
  readonly deadlineMs?: number;
  readonly streamGraceMs?: number;
  readonly allowGap?: boolean;
  /** Grows with each change of intent; a stale actor cannot undo a newer one unseen. */
  readonly sequence: number;
}

/** A node: what is stored of it and what was last seen, side by side. */
export interface NodeView {
  readonly id: string;
  readonly liveness: NodeLiveness;
  /** Monotonic ms since when the liveness holds. */
  readonly livenessSinceMs: number;
  /** Why, for liveness other than `connected`. */
  readonly livenessReason?: string;
  /** True once this incarnation of the server holds a full report of the node. */
  readonly reported: boolean;
  /** Monotonic ms at which the agent's present stream opened; undefined while none is open. No stream, no commands. */
  readonly streamSinceMs: number | undefined;
  /**
   * Keys (`shardKey`) of commands sent to the node whose effect the last full report may not show yet: sent, and no full
   * report has arrived since the agent answered. A new stream's first full report empties the list, for an agent drops what an
   * old stream left. A shard missing from the report counts as stopped only when its key is not here.
   */
  readonly unsettled: readonly string[];
  readonly labels: Readonly<Record<string, string>>;
  /** Address engines on the node are reached at. */
  readonly address: string;
  readonly hostname?: string;
  readonly agentVersion?: string;
  readonly bootId?: string;
  readonly engines: readonly EngineOffer[];
  readonly gpus: readonly GpuReport[];
  readonly shards: readonly ShardReport[];
  /** Ports taken by others in our range, as the agent tested. */
  readonly portsTaken: readonly number[];
  /** Sources whose weights are already on the node's disk. */
  readonly weightsPresent: readonly string[];
  readonly intent: SchedulingIntent;
  /** Conditions with a reason, e.g. `GpuProbeFailing`, `StateDirFull`. */
  readonly conditions: readonly NodeCondition[];
  /** Wall time of a report, also one to an earlier server life, ms; to the nearest ten minutes, for people. */
  readonly lastSeenWallMs?: number;
  /** Monotonic ms of the last report of any kind; silence is counted from here. */
  readonly lastReportMs?: number;
}

export interface NodeCondition {
  readonly type: string;
  readonly reason: string;
  /** New shards must not be started while this holds. */
  readonly blocksPlacement: boolean;
}

// ---------------------------------------------------------------- decided: replicas

/** One shard's place: chosen before the start command is sent and held until its stop is confirmed. */
export interface ShardAssignment {
  readonly shardId: string;
  readonly rank: number;
  readonly nodeId: string;
  readonly gpuUuids: readonly string[];
  /** Memory booked on each GPU, bytes; undefined = the whole device. */
  readonly gpuMemoryBytes?: number;
  readonly ports: ShardPorts;
}

/** What the control plane wants of a replica. */
export type ReplicaIntent = 'run' | 'drain' | 'stop';

/**
 * Room kept for a replica that has none: what others yield to it is given to nobody else. Stored with the replica, so that a
 * restart of the server does not ask for more.
 */
export interface ReservedPlace {
  readonly profile: string;
  readonly shards: readonly Pick<ShardAssignment, 'nodeId' | 'gpuUuids' | 'gpuMemoryBytes'>[];
  /** Replicas whose leaving makes the room; none once it is there. */
  readonly victims: readonly string[];
  /** Models that yielded, also after their replicas are gone: it is why they are short. */
  readonly models: readonly string[];
}

/**
 * One wanted copy of a model: the stored decision. Without shards it waits for a place (`generation` is then that of its last
 * start, 0 before the first). Monotonic times are not here: they mean nothing to the next server life, see {@link ControlMemory}.
 */
export interface ReplicaRecord {
  readonly id: string;
  readonly model: string;
  readonly profile: string;
  /** Digest of everything in the model and profile that the engine process depends on. */
  readonly specDigest: string;
  /** Grows by one with every start of the replica; commands and reports carry it. */
  readonly generation: number;
  readonly intent: ReplicaIntent;
  /** Why the intent is what it is; shown unchanged. */
  readonly intentReason: Reason;
  readonly shards: readonly ShardAssignment[];
  /** What its engine was started with, as the catalog may say something else, or nothing, by the time it is needed. */
  readonly startedWith?: StartedWith;
  readonly createdWallMs: number;
  /** The placement decision as it was made. */
  readonly placement?: PlacementExplanation;
  /** An operator wants a new copy in its place; gone with its next start, which is one. */
  readonly restart?: { readonly actor: string; readonly atWallMs: number; readonly allowGap?: boolean };
  /** Replica this one replaces in a drain, a rolling change or after the loss of a node. */
  readonly replaces?: string;
  /** Room others yield or yielded to it; kept for as long as it stands there, so that one failure does not lose it. */
  readonly reserved?: ReservedPlace;
  /** Wall time at which an agent first reported this generation: from then on a missing shard is a dead one, not a slow one. */
  readonly startedWallMs?: number;
  /** Wall time at which this generation became Ready; undefined again once it stopped being so. */
  readonly readyWallMs?: number;
}

/** Of the profile a replica was placed by; absent on records of older versions. */
export interface StartedWith {
  readonly engine: EngineKind;
  readonly maxConcurrency?: number;
  readonly stopGraceMs: number;
}

export const REPLICA_STATES = [
  'pending',
  'starting',
  'loading',
  'ready',
  'unhealthy',
  'draining',
  'stopping',
  'backoff',
  'failed',
  'unreachable',
  'unknown',
] as const;
/** A replica's state as derived from its record and its shards' reports; never stored. */
export type ReplicaState = (typeof REPLICA_STATES)[number];

/** A replica as shown: the record with what is seen of it. */
export interface ReplicaView {
  readonly record: ReplicaRecord;
  readonly state: ReplicaState;
  readonly reason?: Reason;
  readonly shards: readonly (ShardAssignment & { readonly report?: ShardReport })[];
  readonly backoff?: BackoffRecord;
  readonly restarts: number;
}

/** A wait before the next try, per replica, node, profile and cause. Stored, so that a restart forgets no crash loop. */
export interface BackoffRecord {
  readonly replicaId: string;
  readonly model: string;
  readonly profile: string;
  readonly nodeId: string;
  readonly cause: Verdict;
  readonly failures: number;
  readonly delayMs: number;
  /** Wall time at which the next try is allowed; wall, because it must survive a restart. */
  readonly untilWallMs: number;
  /** The cause cannot pass by waiting; an operator or a changed profile clears it. */
  readonly permanent: boolean;
  readonly lastMessage?: string;
  readonly lastLogTail?: string;
  readonly lastExitCode?: number;
  readonly lastExitSignal?: string;
  readonly lastFailureWallMs: number;
  /** Generation whose failure was counted last: one failure counts once, however often it is reported. */
  readonly generation: number;
  /** Digest of what failed: a changed profile clears a permanent cause. */
  readonly specDigest: string;
}

/** Facts measured from real starts. */
export interface LearnedFact {
  readonly model: string;
  readonly profile: string;
  readonly gpuType: string;
  /** Largest memory seen on one GPU, bytes. */
  readonly memoryPeakBytes?: number;
  /** Digest of what the engine was that had this peak: another model or other arguments need another amount. */
  readonly memoryPeakOf?: string;
  /** The last load times, ms, newest last; bounded. */
  readonly loadMs: readonly number[];
}

// ---------------------------------------------------------------- reasons

/** A typed "no" (or "because"): made once, where the decision is made, and shown unchanged everywhere. */
export interface Reason {
  readonly code: string;
  /** One sentence with the numbers in it. */
  readonly message: string;
  readonly numbers?: Readonly<Record<string, number>>;
}

/** One candidate node and what was said about it. */
export interface NodeVerdict {
  readonly nodeId: string;
  readonly fits: boolean;
  /** Every reason that holds, not the first one; empty when it fits. */
  readonly reasons: readonly Reason[];
  /** Score parts by scorer, 0..1 each, only when it fits. */
  readonly scores?: Readonly<Record<string, number>>;
  readonly total?: number;
  readonly gpus: readonly GpuVerdict[];
}

export interface GpuVerdict {
  readonly uuid: string;
  readonly type: string;
  readonly fits: boolean;
  readonly reasons: readonly Reason[];
  readonly memoryFreeBytes?: number;
  readonly memoryNeededBytes?: number;
  /** Shards of ours on the device. */
  readonly heldBy: readonly string[];
}

/** The answer to "why there?" or "why nowhere?": the same object for explain, records and events. */
export interface PlacementExplanation {
  readonly model: string;
  readonly profiles: readonly ProfileExplanation[];
  /** What was chosen; undefined when nothing fits. */
  readonly chosen?: {
    readonly profile: string;
    readonly shards: readonly ShardAssignment[];
    /** The best node that lost and by how much. */
    readonly beat?: { readonly nodeId: string; readonly byScore: number };
  };
  /** The nearest change that would make it fit, in words, when nothing does. */
  readonly counterfactual?: Reason;
  /** Why nothing was placed although something fits (e.g. settling after start), or nothing fits. */
  readonly blocked?: Reason;
  /** Nodes left out of `profiles` to keep a stored explanation small; 0 or undefined = every node is listed. */
  readonly omittedNodes?: number;
}

export interface ProfileExplanation {
  readonly profile: string;
  readonly fits: boolean;
  readonly nodes: readonly NodeVerdict[];
  /** Profile-wide reasons, e.g. not enough nodes for the gang. */
  readonly reasons: readonly Reason[];
}

/** Key of in-flight counts and evidence. */
export const replicaKey = (replicaId: string, generation: number): string => `${replicaId}@${generation}`;

/** Names one start of one shard. */
export const shardKey = (shardId: string, generation: number): string => `${shardId}@${generation}`;

/**
 * Store key of a back-off record. The profile is part of it: when two profiles fail by turns on one node, each count must
 * survive the other's, or the wait never grows.
 */
export const backoffKey = (
  record: Pick<BackoffRecord, 'replicaId' | 'nodeId' | 'profile' | 'cause'>,
): string => `${record.replicaId}/${record.nodeId}/${record.profile}/${record.cause}`;
