/** Everything a reconcile pass may look at: what is wanted, decided, seen and remembered, and what the router counted. */
import type {
  BackoffRecord,
  LearnedFact,
  NodeView,
  PlacementExplanation,
  Reason,
  ReplicaRecord,
  Verdict,
} from './cluster.js';
import type { ModelSpec } from './model-spec.js';

/**
 * What the control plane remembers from pass to pass within one server life: monotonic times and what was sent. Losing it is
 * safe, it only makes the control plane more patient. Never stored.
 */
export interface ControlMemory {
  /** Monotonic ms of the last pass; a gap shows that we slept. */
  readonly lastPassMs?: number;
  /** Silence before this moment is not held against anybody: we were asleep then. */
  readonly judgeFromMs: number;
  /** Monotonic ms at which an agent was first heard in this server life. */
  readonly firstHeardMs?: number;
  /** The store has lost state, and other agents may bring what it does not know; undefined once they were waited for. */
  readonly stateLost?: StateLoss;
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
  readonly conditions: ReadonlyMap<string, StandingCondition>;
  /** Why models without a place have none, by name: in a large fleet not every one is explained anew in every pass. */
  readonly nowhere: ReadonlyMap<string, NowhereMemory>;
}

/** What shows that the store has lost state: engines without a record, an agent that obeyed a server it does not know, a restore. */
export type StateLoss = 'unknownEngines' | 'obeyedTerm' | 'restored';

/** An explanation of "fits nowhere" and when it was made; without one while the model waits for its turn. */
export interface NowhereMemory {
  /** The declaration it is about; another one needs another explanation. */
  readonly model: ModelSpec;
  /** -Infinity without an explanation: longest without one is next. */
  readonly atMs: number;
  readonly explanation?: PlacementExplanation;
}

/** What holds of a subject (`node/n1`, `model/m`, `replica/r`) without anything to be done about it by itself. */
export interface StandingCondition {
  readonly subject: string;
  readonly reason: Reason;
}

export interface NodeMemory {
  /** Monotonic ms at which the stream seen last opened; another value is a reconnect. */
  readonly streamSinceMs?: number;
  /** Monotonic times of reconnects, newest last; bounded. */
  readonly reconnectsMs: readonly number[];
  /** Monotonic ms at which this server began to carry out the present drain. */
  readonly drainSinceMs?: number;
  /** Monotonic ms at which its overall deadline is over. */
  readonly drainDueMs?: number;
  /** Sequence of the intent `drainSinceMs` belongs to. */
  readonly drainSequence?: number;
  /** Codes already told of that drain. */
  readonly drainTold?: readonly string[];
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
  nowhere: new Map(),
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
  /** Set when it is known beforehand that the store has lost state; agents' reports may show it, too. */
  readonly stateLost?: StateLoss;
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
