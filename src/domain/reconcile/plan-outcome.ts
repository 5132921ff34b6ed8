/** What a plan would make of the world: what its checks look at. Shares no code with the decisions, as they. */
import { type NodeView, type ReplicaRecord, shardKey, type ShardReport } from '../cluster.js';
import type { ModelSpec } from '../model-spec.js';
import type { Action, Plan } from '../plan.js';
import type { Snapshot } from '../snapshot.js';

/** The world as the plan leaves it. */
export class After {
  readonly nodes: ReadonlyMap<string, NodeView>;
  readonly before: ReadonlyMap<string, ReplicaRecord>;
  readonly records: ReadonlyMap<string, ReplicaRecord>;
  readonly models: ReadonlyMap<string, ModelSpec>;

  constructor(
    readonly snapshot: Snapshot,
    readonly plan: Plan,
  ) {
    const liveness = new Map(actionsOf(plan, 'setNodeLiveness').map((one) => [one.nodeId, one.liveness]));
    this.nodes = new Map(
      snapshot.nodes.map((node) => {
        const now = liveness.get(node.id);
        return [node.id, now === undefined ? node : { ...node, liveness: now }];
      }),
    );
    this.before = new Map(snapshot.replicas.map((record) => [record.id, record]));
    this.models = new Map(snapshot.models.map((model) => [model.name, model]));
    const records = new Map(this.before);
    for (const action of plan.actions) {
      if (action.kind === 'createReplica' || action.kind === 'updateReplica')
        records.set(action.record.id, action.record);
      if (action.kind === 'deleteReplica') records.delete(action.replicaId);
    }
    this.records = records;
  }

  /** Whether the present generation of a record has failed, before or by this plan. */
  hasFailed({ id, generation }: ReplicaRecord): boolean {
    const counted = actionsOf(this.plan, 'putBackoff').map(({ record }) => record);
    return [...this.snapshot.backoffs, ...counted].some(
      (one) => one.replicaId === id && one.generation === generation,
    );
  }

  report(nodeId: string, shardId: string, generation: number): ShardReport | undefined {
    const node = this.nodes.get(nodeId);
    return node?.shards.find((one) => one.shardId === shardId && one.generation === generation);
  }

  /** The agent's present word that the shard does not run; silence is not such a word. */
  isGone(nodeId: string, shardId: string, generation: number): boolean {
    const node = this.nodes.get(nodeId);
    if (node === undefined) return true;
    if (!talks(node)) return false;
    const report = this.report(nodeId, shardId, generation);
    if (report !== undefined) return report.phase === 'exited';
    return !node.unsettled.includes(shardKey(shardId, generation));
  }
}

/** Whether its last report may be taken as the present. */
export function talks(node: NodeView): boolean {
  return node.reported && (node.liveness === 'connected' || node.liveness === 'flapping');
}

export function actionsOf<Kind extends Action['kind']>(
  plan: Plan,
  kind: Kind,
): readonly Extract<Action, { kind: Kind }>[] {
  return plan.actions.filter((action): action is Extract<Action, { kind: Kind }> => action.kind === kind);
}
