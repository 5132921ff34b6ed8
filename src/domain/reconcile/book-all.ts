import { type NodeView, type ReplicaRecord, shardKey } from '../cluster.js';
import { Bookings, sharedDevices } from '../placement/bookings.js';
import type { ObservedReplica } from './replica-state.js';
import { bookRoom } from './rooms.js';
import { isStopped } from './shard-state.js';

/**
 * What is taken: rooms kept for replicas that wait, places of records whose end is not confirmed, and what runs without
 * a record.
 */
export function bookAll(
  nodes: readonly NodeView[],
  records: readonly ReplicaRecord[],
  reserving: readonly ReplicaRecord[],
  observed: (record: ReplicaRecord) => ObservedReplica,
): Bookings {
  // What a lost node held is given up with it, and would be held here for ever.
  const bookings = new Bookings(sharedDevices(nodes.filter(({ liveness }) => liveness !== 'lost')));
  const held = new Set<string>();
  for (const record of reserving) bookRoom(bookings, record);
  for (const record of records) {
    const seen = observed(record);
    // Only of a replica that will not be started again may a stopped shard's place be given away.
    const ending = record.intent === 'stop' || seen.failure !== undefined;
    for (const { shard, status } of seen.shards) {
      held.add(`${shard.nodeId}/${shardKey(shard.shardId, record.generation)}`);
      if (ending && isStopped(status)) continue;
      bookings.book(record.model, shard);
    }
  }
  for (const node of nodes) bookStrays(bookings, node, held);
  return bookings;
}

/** Books what a node runs that no record holds there; what it takes is not known, so it holds its devices whole. */
function bookStrays(bookings: Bookings, node: NodeView, held: ReadonlySet<string>): void {
  for (const { shardId, generation, phase, gpuUuids, ports, model } of node.shards) {
    // A store set back to an older copy can give a number out twice: the stray on another node is not the record's.
    if (phase === 'exited' || held.has(`${node.id}/${shardKey(shardId, generation)}`)) continue;
    bookings.book(model, { shardId: `${shardId}@${generation}`, nodeId: node.id, gpuUuids, ports });
  }
}
