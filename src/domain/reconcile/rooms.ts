/** Room that is kept for a waiting replica, as bookings know it. */
import type { ReplicaRecord, ShardAssignment } from '../cluster.js';
import type { Bookings } from '../placement/bookings.js';

/** Waiting, with room kept for it. */
export function awaitsRoom(record: ReplicaRecord): boolean {
  return record.intent === 'run' && record.shards.length === 0 && record.reserved !== undefined;
}

/** What a waiting replica keeps, under names that no shard has. */
export function roomOf(record: ReplicaRecord): readonly ShardAssignment[] {
  if (!awaitsRoom(record)) return [];
  return (record.reserved?.shards ?? []).map((shard, rank) => ({
    ...shard,
    shardId: `${record.id}.${rank} (reserved)`,
    rank,
    ports: { http: 0 },
  }));
}

export function bookRoom(bookings: Bookings, record: ReplicaRecord): void {
  for (const shard of roomOf(record)) bookings.book(record.model, shard);
}
