/**
 * Which nodes may have what a shard printed. The agent that ran it keeps the output, so after a move the earlier run's is
 * where the shard was, and the timeline remembers where that was.
 */
import type { ClusterEvent } from '../events/event.js';
import type { ClusterReading } from './cluster-reader.js';
import { notFound } from './find.js';

/** One node to ask. */
export interface LogPlace {
  readonly nodeId: string;
  readonly shardId: string;
  /** The run before the last one on that node. */
  readonly previous: boolean;
}

/** Nodes asked for one log; a shard that moved more often is asked for where it was last. */
const PLACES_MAX = 8;

/** Where to ask, best first; never empty. Throws when nobody knows the id. */
export function logPlaces(
  reading: ClusterReading,
  events: (replicaId: string) => readonly ClusterEvent[],
  id: string,
  previous: boolean,
): readonly LogPlace[] {
  const now = presentPlace(reading, id);
  if (now !== undefined && !previous) return [{ ...now, previous }];
  // A shard is named after its replica and its rank.
  const shardId = now?.shardId ?? (/\.\d+$/.test(id) ? id : `${id}.0`);
  const replicaId = shardId.replace(/\.\d+$/, '');
  const earlier = earlierNodes(events(replicaId), now?.nodeId).map((nodeId) => ({
    nodeId,
    shardId,
    // A shard that went elsewhere made no later run there.
    previous: now === undefined && previous,
  }));
  const places = [...(now === undefined ? [] : [{ ...now, previous }]), ...earlier].slice(0, PLACES_MAX);
  if (places.length > 0) return places;
  throw notFound('shard', id, [...new Set(knownShards(reading).map((shard) => shard.shardId))]);
}

/** Nodes that an earlier placement named, latest first. */
function earlierNodes(events: readonly ClusterEvent[], present: string | undefined): string[] {
  const named = events.toReversed().flatMap(({ related }) => related.filter(({ kind }) => kind === 'node'));
  return [...new Set(named.map(({ id }) => id))].filter((nodeId) => nodeId !== present);
}

type Shard = Omit<LogPlace, 'previous'>;

function knownShards(reading: ClusterReading): Shard[] {
  const decided = reading.replicas.flatMap(({ record }) => record.shards);
  const reported = reading.snapshot.nodes.flatMap((node) =>
    node.shards.map((shard) => ({ shardId: shard.shardId, nodeId: node.id })),
  );
  return [...decided, ...reported].map(({ shardId, nodeId }) => ({ shardId, nodeId }));
}

/** Where a shard is: by record, or because its node reports it. */
function presentPlace(reading: ClusterReading, id: string): Shard | undefined {
  const all = knownShards(reading);
  const exact = all.find((shard) => shard.shardId === id);
  if (exact !== undefined) return exact;
  const replica = reading.replicas.find(({ record }) => record.id === id || record.id.startsWith(id));
  const head = replica?.record.shards.find((shard) => shard.rank === 0);
  if (head !== undefined) return { shardId: head.shardId, nodeId: head.nodeId };
  return all.find((shard) => shard.shardId.startsWith(id));
}
