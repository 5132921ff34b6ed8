import { Inject, Injectable } from '@nestjs/common';
import { CatalogService } from '../catalog/catalog.service.js';
import {
  backoffKey,
  shardKey,
  type BackoffRecord,
  type LearnedFact,
  type NodeView,
  type ReplicaRecord,
} from '../domain/cluster.js';
import type { Action, Plan } from '../domain/plan.js';
import {
  NO_MEMORY,
  type CommandRefusal,
  type ControlMemory,
  type Snapshot,
  type StateLoss,
} from '../domain/snapshot.js';
import { relinkRenamed, type Relinked } from '../domain/reconcile/renamed-node.js';
import type { EventInput } from '../events/event-log.js';
import { InventoryService } from '../inventory/inventory.service.js';
import { ROUTER_PORT, type RouterPort } from '../router/ports.js';
import { STATE_STORE, type StateStore, type StoreOp } from '../store/ports.js';
import { STATE_LOST_KEY } from '../store/tables.js';
import { TERM, type Term } from '../store/term.js';

/**
 * Everything a pass looks at, brought together; and how the decisions of a plan lie in the store. What is seen comes from
 * inventory and router, what was decided from the store, what is remembered between passes lives here and nowhere else.
 */
@Injectable()
export class ClusterState {
  private memory: ControlMemory = NO_MEMORY;
  private planNumber = 0;
  /** Records as the last snapshot carried them over; stored before anything is decided on them. */
  private carriedOver: readonly Relinked[] = [];
  private readonly refusals = new Map<string, CommandRefusal>();

  constructor(
    @Inject(STATE_STORE) private readonly store: StateStore,
    @Inject(TERM) private readonly term: Term,
    @Inject(CatalogService) private readonly catalog: CatalogService,
    @Inject(InventoryService) private readonly inventory: InventoryService,
    @Inject(ROUTER_PORT) private readonly router: RouterPort,
  ) {}

  /** The world as of now. `startedMs` is when this server began to decide, monotonic. */
  snapshot(startedMs: number): Snapshot {
    const nodes = this.inventory.nodes();
    const stateLost = this.stateLost();
    return {
      term: this.term.current(),
      planNumber: this.planNumber,
      models: this.catalog.models(),
      nodes,
      replicas: this.relinked(nodes),
      backoffs: values<BackoffRecord>(this.store.list('backoffs')),
      learned: values<LearnedFact>(this.store.list('learned')),
      inflight: this.router.inflight(),
      evidence: this.router.evidence(),
      startedMs,
      refusals: this.refusals,
      memory: this.memory,
      ...(stateLost === undefined ? {} : { stateLost }),
    };
  }

  private stateLost(): StateLoss | undefined {
    const stored = this.store.get<StateLoss>('meta', STATE_LOST_KEY);
    return stored ?? (this.term.wasRaised ? 'obeyedTerm' : undefined);
  }

  /** A server that ends while it waits for agents must not forget why: the next one would know fewer signs of it. */
  stateLostOps({ memory }: Plan): readonly StoreOp[] {
    const stored = this.store.get<StateLoss>('meta', STATE_LOST_KEY);
    const { stateLost, firstHeardMs } = memory;
    if (stateLost === stored) return [];
    if (stateLost !== undefined)
      return [{ op: 'put', collection: 'meta', key: STATE_LOST_KEY, value: stateLost }];
    return firstHeardMs === undefined ? [] : [{ op: 'delete', collection: 'meta', key: STATE_LOST_KEY }];
  }

  /** The records, those of a renamed machine carried over to its present node. */
  private relinked(nodes: readonly NodeView[]): readonly ReplicaRecord[] {
    const records = this.replicas();
    const changes = relinkRenamed(records, nodes, (id) => this.inventory.record(id)?.machineId);
    this.carriedOver = changes;
    if (changes.length === 0) return records;
    const byId = new Map(changes.map((change) => [change.record.id, change.record]));
    return records.map((record) => byId.get(record.id) ?? record);
  }

  replicas(): readonly ReplicaRecord[] {
    return values<ReplicaRecord>(this.store.list('replicas'));
  }

  /** An agent said no to a start. */
  commandRefused(key: string, refusal: CommandRefusal): void {
    this.refusals.set(key, refusal);
  }

  /** A plan was carried out; `unsent` are the memory's keys of commands that could not be sent after all. */
  planDone(plan: Plan, unsent: readonly string[]): void {
    this.planNumber = plan.number;
    const commands = new Map(plan.memory.commands);
    // Not sent is not "sent and unanswered": the next pass must not wait for an answer that cannot come.
    for (const key of unsent) commands.delete(key);
    this.memory = { ...plan.memory, commands };
    this.forgetOldRefusals();
  }

  /** A plan was refused or could not be stored: its number is spent, what it would have remembered is not. */
  planDropped(plan: Plan): void {
    this.planNumber = plan.number;
  }

  /** The plan's word on nodes becomes what everybody sees of them. */
  noteLiveness(plan: Plan): void {
    for (const action of plan.actions) {
      if (action.kind !== 'setNodeLiveness') continue;
      this.inventory.setLiveness(action.nodeId, action.liveness, action.reason.message);
    }
  }

  /** Facts about nodes that must be stored before anything is decided on them; {@link pendingStored} must follow. */
  pendingOps(): readonly StoreOp[] {
    return [
      ...this.inventory.pendingOps(),
      ...this.carriedOver.map(({ record }): StoreOp => ({
        op: 'put',
        collection: 'replicas',
        key: record.id,
        value: record,
      })),
    ];
  }

  /** What to tell of records that are carried over with {@link pendingOps}. */
  pendingEvents(): readonly EventInput[] {
    return this.carriedOver.map(({ record, from, to }) => ({
      type: 'ReplicaCarriedOver',
      subject: { kind: 'replica', id: record.id },
      reason: {
        code: 'node_renamed',
        message: `the machine of ${from} is back as ${to}, with this replica running`,
      },
      actor: 'reconciler',
      related: [
        { kind: 'node', id: from },
        { kind: 'node', id: to },
      ],
    }));
  }

  pendingStored(): void {
    this.carriedOver = [];
    this.inventory.pendingStored();
  }

  private forgetOldRefusals(): void {
    if (this.refusals.size === 0) return;
    const current = new Set(
      this.replicas().flatMap((replica) =>
        replica.shards.map((shard) => shardKey(shard.shardId, replica.generation)),
      ),
    );
    for (const key of this.refusals.keys()) if (!current.has(key)) this.refusals.delete(key);
  }
}

/** What storing a plan writes. */
export function planOps(plan: Plan): readonly StoreOp[] {
  return plan.actions.flatMap(actionOps);
}

function actionOps(action: Action): readonly StoreOp[] {
  switch (action.kind) {
    case 'createReplica':
    case 'updateReplica':
      return [{ op: 'put', collection: 'replicas', key: action.record.id, value: action.record }];
    case 'deleteReplica':
      return [{ op: 'delete', collection: 'replicas', key: action.replicaId }];
    case 'putBackoff':
      return [{ op: 'put', collection: 'backoffs', key: backoffKey(action.record), value: action.record }];
    case 'clearBackoff':
      return [{ op: 'delete', collection: 'backoffs', key: backoffKey(action.record) }];
    case 'putLearned':
      return [{ op: 'put', collection: 'learned', key: learnedFactKey(action.fact), value: action.fact }];
    case 'startShard':
    case 'stopShard':
    case 'abortInflight':
    case 'setNodeLiveness':
      return [];
  }
}

function learnedFactKey(fact: Pick<LearnedFact, 'model' | 'profile' | 'gpuType'>): string {
  // Model names hold slashes and colons; JSON keeps the parts apart whatever they hold.
  return JSON.stringify([fact.model, fact.profile, fact.gpuType]);
}

function values<T>(entries: readonly { readonly value: unknown }[]): readonly T[] {
  return entries.map((entry) => entry.value as T);
}
