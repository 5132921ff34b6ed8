import { Inject, Injectable } from '@nestjs/common';
import { CatalogService } from '../catalog/catalog.service.js';
import { replicaKey, type NodeView, type ReplicaRecord, type ReplicaView } from '../domain/cluster.js';
import type { ModelSpec } from '../domain/model-spec.js';
import type { PublishedReplica } from '../domain/plan.js';
import type { Snapshot } from '../domain/snapshot.js';
import { viewReplicas } from '../domain/reconcile/replica-state.js';
import { InventoryService } from '../inventory/inventory.service.js';
import { ReconcilerService, type PassRecord } from '../reconciler/reconciler.service.js';
import { RoutePublisher } from '../reconciler/route-publisher.js';
import { CLOCK, type Clock } from '../shared/clock.js';
import { findByPrefix, findNamed } from './find.js';
import { ViewTimes } from './view-times.js';

/** One consistent look at the cluster, with the lookups that views need. */
export class ClusterReading {
  readonly nodes: ReadonlyMap<string, NodeView>;
  readonly published: ReadonlyMap<string, PublishedReplica>;
  private readonly byNode = new Map<string, ReplicaView[]>();
  private readonly byModel = new Map<string, ReplicaView[]>();

  constructor(
    readonly times: ViewTimes,
    readonly snapshot: Snapshot,
    readonly replicas: readonly ReplicaView[],
    published: readonly PublishedReplica[],
    readonly pass: PassRecord | undefined,
    /** The server has just started: what it has not heard of is no bad news yet. */
    readonly settling: boolean,
  ) {
    this.nodes = new Map(snapshot.nodes.map((node) => [node.id, node]));
    this.published = new Map(published.map((one) => [one.replicaId, one]));
    for (const replica of replicas) {
      push(this.byModel, replica.record.model, replica);
      for (const nodeId of nodeIdsOf(replica.record)) push(this.byNode, nodeId, replica);
    }
  }

  replicasOn(nodeId: string): readonly ReplicaView[] {
    return this.byNode.get(nodeId) ?? [];
  }

  replicasOf(model: string): readonly ReplicaView[] {
    return this.byModel.get(model) ?? [];
  }

  inflight(record: ReplicaRecord): number {
    return this.snapshot.inflight.get(replicaKey(record.id, record.generation)) ?? 0;
  }

  /** What holds of a model without anything being done about it, as the last pass noted it. */
  conditions(model: string) {
    const of = this.pass?.plan.conditions.filter(({ subject }) => subject === `model/${model}`) ?? [];
    return of.map(({ reason }) => reason);
  }

  /** What is not being done about the subject (`model/m`, `replica/r`), as the last pass said it. */
  notDone(subject: string) {
    return this.pass?.plan.notDone.filter((one) => one.subject === subject).map((one) => one.reason) ?? [];
  }
}

/** Nodes a replica stands on, each once. */
export function nodeIdsOf(record: ReplicaRecord): readonly string[] {
  return [...new Set(record.shards.map((shard) => shard.nodeId))];
}

/** Where the admin API reads the cluster from. */
@Injectable()
export class ClusterReader {
  constructor(
    @Inject(ReconcilerService) private readonly reconciler: ReconcilerService,
    @Inject(RoutePublisher) private readonly publisher: RoutePublisher,
    @Inject(InventoryService) readonly inventory: InventoryService,
    @Inject(CatalogService) readonly catalog: CatalogService,
    @Inject(CLOCK) private readonly clock: Clock,
  ) {}

  read(): ClusterReading {
    const times = new ViewTimes(this.clock);
    const snapshot = this.reconciler.snapshot();
    const replicas = viewReplicas(snapshot, times.nowMs, times.nowWallMs);
    return new ClusterReading(
      times,
      snapshot,
      replicas,
      this.publisher.replicas(),
      this.reconciler.lastPass(),
      this.reconciler.settling,
    );
  }

  /** A node by id or unique beginning. Throws `not_found` with near names. */
  node(reading: ClusterReading, id: string): NodeView {
    return findByPrefix('node', id, reading.snapshot.nodes, (node) => node.id);
  }

  /** A node by its whole id: for what cannot be taken back the beginning is not enough. */
  namedNode(reading: ClusterReading, id: string): NodeView {
    return findNamed('node', id, reading.snapshot.nodes, (node) => [node.id]);
  }

  /** A replica by its whole id. */
  namedReplica(reading: ClusterReading, id: string): ReplicaView {
    return findNamed('replica', id, reading.replicas, ({ record }) => [record.id]);
  }

  /** A replica by id or unique beginning. */
  replica(reading: ClusterReading, id: string): ReplicaView {
    return findByPrefix('replica', id, reading.replicas, (replica) => replica.record.id);
  }

  /** A model by name or alias; beginnings do not count, names of models differ in their ends. */
  model(name: string): ModelSpec {
    return findNamed('model', name, this.catalog.models(), (model) => [model.name, ...model.aliases]);
  }
}

function push<K, V>(map: Map<K, V[]>, key: K, value: V): void {
  const list = map.get(key);
  if (list === undefined) map.set(key, [value]);
  else list.push(value);
}
