import { Inject, Injectable } from '@nestjs/common';
import type { NodeLiveness, NodeView, Reason, SchedulingIntent } from '../domain/cluster.js';
import type { Hello, NodeReport } from '../agent-protocol/messages.js';
import { CLOCK, type Clock } from '../shared/clock.js';
import { STATE_STORE, type StateStore, type StoreOp } from '../store/ports.js';
import {
  NO_INTENT,
  NodeEntry,
  type Reconnection,
  type ReportOutcome,
  type StoredNode,
} from './node-entry.js';

/** Node ids under which refused agents are remembered; beyond it the oldest are forgotten. */
const REFUSED_NODES_MAX = 256;
/** Different refusals remembered per node id. */
const REFUSED_PER_NODE_MAX = 4;

/** Agents that were not taken under a node id. */
export interface RefusedAgent {
  readonly from: string;
  readonly reason: Reason;
  readonly atWallMs: number;
  readonly count: number;
}

/** What is known of the machines: who they are (stored) and what their agents last reported (never stored). */
@Injectable()
export class InventoryService {
  private readonly entries = new Map<string, NodeEntry>();
  private readonly refused = new Map<string, RefusedAgent[]>();

  constructor(
    @Inject(STATE_STORE) private readonly store: StateStore,
    @Inject(CLOCK) private readonly clock: Clock,
  ) {
    const nowMs = clock.monotonicMs();
    for (const { key, value } of store.list<StoredNode>('nodes')) {
      this.entries.set(key, new NodeEntry(value, this.storedIntent(key), nowMs, false));
    }
  }

  /** Every node ever taken and not removed, in id order. */
  nodes(): readonly NodeView[] {
    return [...this.entries.values()]
      .map((entry) => entry.view())
      .sort((a, b) => (a.id < b.id ? -1 : a.id > b.id ? 1 : 0));
  }

  node(id: string): NodeView | undefined {
    return this.entries.get(id)?.view();
  }

  /** Stored identity of a node. */
  record(id: string): StoredNode | undefined {
    return this.entries.get(id)?.record;
  }

  // ------------------------------------------------------------ what agents do

  /**
   * A stream was taken for this node; engines there are reached at `address`. Returns what it is to the one before;
   * undefined for the node's first stream in this server life.
   */
  connected(hello: Hello, address: string): Reconnection | undefined {
    const nowMs = this.clock.monotonicMs();
    let entry = this.entries.get(hello.nodeId);
    if (entry === undefined) {
      const stored: StoredNode = {
        id: hello.nodeId,
        address,
        labels: hello.labels,
        gpus: [],
        firstSeenWallMs: this.clock.wallMs(),
      };
      entry = new NodeEntry(stored, this.storedIntent(hello.nodeId), nowMs, true);
      this.entries.set(hello.nodeId, entry);
    }
    this.refused.delete(hello.nodeId);
    return entry.connect(hello, address, nowMs);
  }

  /** The node's present stream is gone. */
  disconnected(nodeId: string): void {
    this.entries.get(nodeId)?.disconnect(this.clock.monotonicMs());
  }

  /** Takes a report of the node's present stream. */
  reported(nodeId: string, report: NodeReport): ReportOutcome {
    const entry = this.entries.get(nodeId);
    return entry?.takeReport(report, this.clock.monotonicMs(), this.clock.wallMs()) ?? 'stale';
  }

  /** An agent that came under this node id was not taken. Returns how often this one was, for this reason. */
  agentRefused(nodeId: string, from: string, reason: Reason): number {
    const known = this.refused.get(nodeId) ?? [];
    const same = known.find((one) => one.from === from && one.reason.code === reason.code);
    const entry = { from, reason, atWallMs: this.clock.wallMs(), count: (same?.count ?? 0) + 1 };
    const others = known.filter((one) => one !== same);
    this.refused.delete(nodeId);
    this.refused.set(nodeId, [...others, entry].slice(-REFUSED_PER_NODE_MAX));
    if (this.refused.size > REFUSED_NODES_MAX) {
      const [oldest] = this.refused.keys();
      if (oldest !== undefined) this.refused.delete(oldest);
    }
    return entry.count;
  }

  /** Refused agents by node id, also of ids no node is known under. */
  refusedAgents(): ReadonlyMap<string, readonly RefusedAgent[]> {
    return this.refused;
  }

  // ------------------------------------------------------------ what the control plane does

  commandSent(nodeId: string, commandId: string, shardKey: string): void {
    this.entries.get(nodeId)?.commandSent(commandId, shardKey);
  }

  /** The shard key the command was about; undefined when nobody remembers it. */
  commandAnswered(nodeId: string, commandId: string): string | undefined {
    return this.entries.get(nodeId)?.commandAnswered(commandId);
  }

  setLiveness(nodeId: string, liveness: NodeLiveness, reason: string | undefined): void {
    this.entries.get(nodeId)?.setLiveness(liveness, reason, this.clock.monotonicMs());
  }

  /** Puts a stored intent in force; the caller has stored `intentOp(nodeId, intent)` before. */
  intentStored(nodeId: string, intent: SchedulingIntent): void {
    this.entries.get(nodeId)?.setIntent(intent);
  }

  intentOp(nodeId: string, intent: SchedulingIntent): StoreOp {
    return { op: 'put', collection: 'intents', key: nodeId, value: intent };
  }

  /** What deletes a node and everything kept under its id from the store; `forgotten` completes it. */
  removalOps(nodeId: string): readonly StoreOp[] {
    return [
      { op: 'delete', collection: 'nodes', key: nodeId },
      { op: 'delete', collection: 'intents', key: nodeId },
    ];
  }

  forgotten(nodeId: string): void {
    this.entries.delete(nodeId);
    this.refused.delete(nodeId);
  }

  /** Identities that changed since they were stored; `pendingStored` must follow when they are on disk. */
  pendingOps(): readonly StoreOp[] {
    return [...this.entries.values()]
      .filter((entry) => entry.dirty)
      .map((entry) => ({ op: 'put', collection: 'nodes', key: entry.record.id, value: entry.record }));
  }

  pendingStored(): void {
    for (const entry of this.entries.values()) entry.dirty = false;
  }

  private storedIntent(nodeId: string): SchedulingIntent {
    return this.store.get<SchedulingIntent>('intents', nodeId) ?? NO_INTENT;
  }
}
