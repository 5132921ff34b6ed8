/**
 * The nouns of the cluster as plain data. Every other room of `src/domain` and every shell speaks in these types.
 *
 * Two kinds of facts never mix: what is *wanted and decided* (models, intents, replica records: stored) and
 * what was *seen* (nodes' reports: never stored, it comes back from the agents). A field that may be unknown
 * is `undefined`, never zero: no decision is taken on a fact nobody reported.
 */

// ---------------------------------------------------------------- wanted: the catalog

export const ENGINE_KINDS = ['vllm', 'sglang', 'llamacpp', 'command', 'sim', 'embedded'] as const;
/** Which engine driver runs a profile. */
export type EngineKind = (typeof ENGINE_KINDS)[number];

/** A value handed to an engine's environment: literal, or read on the agent's machine from a file. */
export type EnvValue = { readonly value: string } | { readonly fromFile: string };

/** Where a model's replicas may and should stand. */
export interface PlacementRules {
  /** `pack` leaves the largest hole free; `spread` puts replicas on different nodes first. */
  readonly strategy: 'pack' | 'spread';
  /** Labels a node must carry, all of them. */
  readonly nodeSelector: Readonly<Record<string, string>>;
  /** Label whose values are failure domains, e.g. `rack`; undefined = the node itself. */
  readonly spreadBy?: string;
  /** At most one replica of the model per node when true. */
  readonly antiAffinity: boolean;
}

/** A launch profile: one way to run a model. */
export interface Profile {
  readonly name: string;
  readonly engine: EngineKind;
  /** Nodes per replica; rank 0 serves HTTP. */
  readonly shards: number;
  /** GPUs per shard; 0 = runs on the CPU. */
  readonly gpus: number;
  /** Memory needed on each GPU, bytes; undefined = not declared (then a GPU counts as wholly used). */
  readonly gpuMemoryBytes?: number;
  /** Glob over the GPU type, e.g. `H100*`; undefined = any. */
  readonly gpuType?: string;
  /** Extra engine arguments; the agent's allow-list decides what passes. */
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, EnvValue>>;
  /** Concurrent requests one replica takes; undefined = no limit of ours. */
  readonly maxConcurrency?: number;
  /** A start without any progress for this long has failed, ms. */
  readonly startTimeoutMs: number;
  /** Time between TERM and KILL, ms. */
  readonly stopGraceMs: number;
  /** Canary weight of this profile's replicas against others of the model. */
  readonly weight: number;
}

/** What clients ask for by name. */
export interface ModelSpec {
  readonly name: string;
  readonly aliases: readonly string[];
  /** Repository id or a path under an allowed model root of the agent; undefined for engines that need none (`sim`). */
  readonly source?: string;
  /** Desired replicas, after `ctl scale`. */
  readonly replicas: number;
  /** Name of the routing profile. */
  readonly routing?: string;
  /** Models tried when nothing of this one can serve. */
  readonly fallback: readonly string[];
  /** Higher is moved and placed first when several want room; what runs is never displaced. */
  readonly priority: number;
  readonly placement: PlacementRules;
  /** Best first. */
  readonly profiles: readonly Profile[];
  /**
   * What a rolling change does when the new copy fits nowhere beside the old one: `wait` (the default) keeps the old one
   * and says so, `swap` stops one old copy at a time first.
   */
  readonly onNoSurge?: 'wait' | 'swap';
  /** Wall time of the last `restart` of the model, ms. Part of the spec digest, so a restart is an ordinary rolling change. */
  readonly restartedWallMs?: number;
}

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
  readonly createdWallMs: number;
  /** The placement decision as it was made. */
  readonly placement?: PlacementExplanation;
  /** An operator wants a new copy in its place; gone with its next start, which is one. */
  readonly restart?: { readonly actor: string; readonly atWallMs: number };
  /** Replica this one replaces in a drain, a rolling change or after the loss of a node. */
  readonly replaces?: string;
  /** Wall time at which an agent first reported this generation: from then on a missing shard is a dead one, not a slow one. */
  readonly startedWallMs?: number;
  /** Wall time at which this generation became Ready; undefined again once it stopped being so. */
  readonly readyWallMs?: number;
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
  readonly memoryPeakBytes?: number;
  /** The last load times, ms, newest last; bounded. */
  readonly loadMs: readonly number[];
}

// ---------------------------------------------------------------- reasons and plans

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

/** One step of a plan. Each carries its reason; execution makes no choice of its own. */
export type Action =
  | { readonly kind: 'createReplica'; readonly record: ReplicaRecord; readonly reason: Reason }
  | { readonly kind: 'updateReplica'; readonly record: ReplicaRecord; readonly reason: Reason }
  | { readonly kind: 'deleteReplica'; readonly replicaId: string; readonly reason: Reason }
  | { readonly kind: 'startShard'; readonly command: StartShardCommand; readonly reason: Reason }
  | { readonly kind: 'stopShard'; readonly command: StopShardCommand; readonly reason: Reason }
  | { readonly kind: 'putBackoff'; readonly record: BackoffRecord; readonly reason: Reason }
  | {
      readonly kind: 'clearBackoff';
      readonly replicaId: string;
      readonly nodeId: string;
      readonly reason: Reason;
    }
  | { readonly kind: 'putLearned'; readonly fact: LearnedFact; readonly reason: Reason }
  /** The grace is over: the router ends what still runs on this generation, each client with an error event. Comes before its stops. */
  | {
      readonly kind: 'abortInflight';
      readonly replicaId: string;
      readonly generation: number;
      readonly reason: Reason;
    }
  | {
      readonly kind: 'setNodeLiveness';
      readonly nodeId: string;
      readonly liveness: NodeLiveness;
      readonly reason: Reason;
    };

/** Everything an agent needs to build an engine's command line itself. */
export interface StartShardCommand {
  readonly nodeId: string;
  readonly shardId: string;
  readonly replicaId: string;
  readonly generation: number;
  readonly model: string;
  readonly aliases: readonly string[];
  readonly source?: string;
  readonly profile: Profile;
  readonly rank: number;
  readonly shards: number;
  readonly gpuUuids: readonly string[];
  readonly ports: ShardPorts;
  /** Every rank's address and ports, by rank. */
  readonly peers: readonly { readonly rank: number; readonly address: string; readonly ports: ShardPorts }[];
  readonly specDigest: string;
}

export interface StopShardCommand {
  readonly nodeId: string;
  readonly shardId: string;
  readonly replicaId: string;
  readonly generation: number;
  readonly graceMs: number;
}

/** A Ready replica as the router may use it. */
export interface PublishedReplica {
  readonly replicaId: string;
  readonly generation: number;
  readonly model: string;
  readonly profile: string;
  readonly nodeId: string;
  readonly address: string;
  readonly port: number;
  readonly engine: EngineKind;
  readonly maxConcurrency?: number;
  readonly weight: number;
}

/**
 * The immutable, numbered result of one reconcile pass. Carried out in this order: store the record actions, apply `published`
 * to the router, abort in-flight, send stops, send starts. Then `memory` goes into the next snapshot; a plan that was refused or
 * could not be stored leaves the former memory in place.
 */
export interface Plan {
  readonly number: number;
  readonly term: number;
  readonly actions: readonly Action[];
  /** What is not being done, and why: one entry per model, replica or node concerned. */
  readonly notDone: readonly { readonly subject: string; readonly reason: Reason }[];
  /** The complete list of what the router may use after this plan; anything else is unpublished before stops. */
  readonly published: readonly PublishedReplica[];
  /** Last placement attempt per model that wants more replicas than it has. */
  readonly explanations: readonly PlacementExplanation[];
  /** What happened in this pass and is told once: a bound was hit, a brake came on, a shard was adopted. */
  readonly events: readonly PlanEvent[];
  /** What holds without anything to be done by itself, e.g. copies that stand closer together than wanted. */
  readonly conditions: readonly { readonly subject: string; readonly reason: Reason }[];
  readonly memory: ControlMemory;
}

/** Something the pass noticed, for the timeline of its subject (`node/n1`, `model/m`, `replica/r`). */
export interface PlanEvent {
  readonly subject: string;
  readonly reason: Reason;
}

/**
 * What the control plane remembers from pass to pass within one server life: monotonic times and what was sent. Losing it is
 * safe, it only makes the control plane more patient. Never stored.
 */
export interface ControlMemory {
  /** Monotonic ms of the last pass; a gap shows that we slept. */
  readonly lastPassMs?: number;
  /** Silence before this moment is not held against anybody: we were asleep then. */
  readonly judgeFromMs: number;
  /** Since when the mass-loss brake is on. */
  readonly brakeSinceMs?: number;
  readonly nodes: ReadonlyMap<string, NodeMemory>;
  /** By replica id. */
  readonly replicas: ReadonlyMap<string, ReplicaMemory>;
  /** Commands sent and not yet seen to have worked, by `start:` or `stop:` and `shardKey`. */
  readonly commands: ReadonlyMap<string, CommandMemory>;
  /** Since when a shard of ours without a record is seen, by `shardKey`. */
  readonly orphans: ReadonlyMap<string, number>;
  /** Conditions of the last pass by subject and code: one is told when it begins and when it ends. */
  readonly conditions: ReadonlyMap<string, Plan['conditions'][number]>;
}

export interface NodeMemory {
  /** Monotonic ms at which the stream seen last opened; another value is a reconnect. */
  readonly streamSinceMs?: number;
  /** Monotonic times of reconnects, newest last; bounded. */
  readonly reconnectsMs: readonly number[];
  /** Monotonic ms at which this server began to carry out the present drain. */
  readonly drainSinceMs?: number;
  /** Sequence of the intent `drainSinceMs` belongs to. */
  readonly drainSequence?: number;
}

export interface ReplicaMemory {
  readonly generation: number;
  /** Since when this server knows the replica; bounds of moves are counted from here. */
  readonly sinceMs: number;
  readonly readySinceMs?: number;
  readonly unhealthySinceMs?: number;
  /** Since when it is out of the router on its way to a stop. */
  readonly drainSinceMs?: number;
  /** Since when its place is decided and no agent has reported it. */
  readonly startSinceMs?: number;
  /** Monotonic ms before which it is not placed again after a failure. */
  readonly retryAtMs?: number;
  /** Codes of bounds already told. */
  readonly told: readonly string[];
}

export interface CommandMemory {
  readonly sentMs: number;
  readonly times: number;
}

/** The memory of a server that has just started. */
export const NO_MEMORY: ControlMemory = {
  judgeFromMs: 0,
  nodes: new Map(),
  replicas: new Map(),
  commands: new Map(),
  orphans: new Map(),
  conditions: new Map(),
};

/** Everything reconcile may look at. */
export interface Snapshot {
  readonly term: number;
  readonly planNumber: number;
  readonly models: readonly ModelSpec[];
  readonly nodes: readonly NodeView[];
  readonly replicas: readonly ReplicaRecord[];
  readonly backoffs: readonly BackoffRecord[];
  readonly learned: readonly LearnedFact[];
  /** Requests in flight per `replicaId@generation`, counted by our router. */
  readonly inflight: ReadonlyMap<string, number>;
  /** What the data path knows of replicas: proof of life or of death. */
  readonly evidence: ReadonlyMap<string, DataPathEvidence>;
  /** Monotonic ms at which this server started deciding. */
  readonly startedMs: number;
  /** Commands an agent refused, by `shardKey`; kept until the replica has a higher generation or is gone. */
  readonly refusals: ReadonlyMap<string, CommandRefusal>;
  /** From the last plan that was carried out; {@link NO_MEMORY} at first. */
  readonly memory: ControlMemory;
}

/** An agent's "no" to a start. */
export interface CommandRefusal {
  readonly verdict: Verdict;
  readonly message?: string;
}

/** The router's word about one published replica, keyed `replicaId@generation`. */
export interface DataPathEvidence {
  /** Monotonic ms of the last byte of an answer. */
  readonly lastByteMs?: number;
  /** First-token timeouts in a row without any token between them. */
  readonly firstTokenTimeouts: number;
  readonly consecutiveFailures: number;
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
