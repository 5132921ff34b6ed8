/** A fleet of the size the benchmark asks for, every replica placed and Ready, as a pass over it finds it. */
import type { NodeView, ReplicaRecord } from '../../src/domain/cluster.js';
import type { ModelSpec } from '../../src/domain/model-spec.js';
import type { Snapshot } from '../../src/domain/snapshot.js';
import { replicaKey } from '../../src/domain/cluster.js';
import {
  aModel,
  aNode,
  aProfile,
  aReplica,
  aShard,
  aSnapshot,
  GIB,
  reportsOf,
} from '../../test/support/cluster-builder.js';

export interface FleetSize {
  readonly nodes: number;
  readonly gpus: number;
  readonly models: number;
  readonly replicas: number;
  /** Replicas wanted beyond those that run. */
  readonly wanted: number;
}

export function fleet(size: FleetSize, nowMs: number): Snapshot {
  const models = modelsOf(size);
  const replicas = Array.from({ length: size.replicas }, (_, index) => replicaOf(size, models, index));
  const reports = new Map<string, ReturnType<typeof reportsOf>[number][]>();
  for (const report of replicas.flatMap((record) => reportsOf(record)))
    reports.set(report.nodeId, [...(reports.get(report.nodeId) ?? []), report]);
  const nodes = Array.from({ length: size.nodes }, (_, index): NodeView => {
    const id = nodeId(index);
    const change = {
      lastReportMs: nowMs - 1_000,
      labels: { zone: `z${index % 4}`, rack: `r${index % 40}` },
      shards: (reports.get(id) ?? []).map(({ nodeId: _node, ...report }) => report),
    };
    return aNode(id, size.gpus, change);
  });
  const keys = replicas.map((record) => replicaKey(record.id, record.generation));
  return aSnapshot({
    models,
    nodes,
    replicas,
    inflight: new Map(keys.map((key) => [key, 4])),
    evidence: new Map(
      keys.map((key) => [key, { firstTokenTimeouts: 0, consecutiveFailures: 0, lastByteMs: nowMs - 100 }]),
    ),
    startedMs: -10_000_000,
  });
}

const nodeId = (index: number): string => `n${String(index).padStart(4, '0')}`;

function modelsOf({ models, replicas, wanted }: FleetSize): readonly ModelSpec[] {
  return Array.from({ length: models }, (_, index) =>
    aModel({
      name: `model-${index}`,
      replicas: Math.floor((replicas + wanted) / models),
      profiles: [
        aProfile({ name: 'large', gpuMemoryBytes: 70 * GIB, gpuType: 'H100*' }),
        aProfile({ name: 'small', gpuMemoryBytes: 40 * GIB }),
      ],
    }),
  );
}

function replicaOf(size: FleetSize, models: readonly ModelSpec[], index: number): ReplicaRecord {
  const model = models[index % models.length];
  if (model === undefined) throw new Error('a fleet needs models');
  const node = nodeId(index % size.nodes);
  const slot = Math.floor(index / size.nodes);
  const id = `${model.name}-${String(index).padStart(5, '0')}`;
  const shard = aShard(id, node, {
    gpuUuids: [`${node}-g${slot}`],
    gpuMemoryBytes: 70 * GIB,
    ports: { http: 20_000 + slot },
  });
  return aReplica(id, model, node, { shards: [shard] });
}
