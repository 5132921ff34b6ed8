/**
 * Tells agents which shards only finish what they have, so that their own questions to the engine do not count as work
 * that is left. Told once per change; what could not be sent is told with the next change of the record.
 */
import type { ReplicaRecord } from '../domain/cluster.js';
import type { Action } from '../domain/plan.js';
import type { DrainShardCommand } from './ports.js';

export class DrainNotices {
  /** Replicas told of, with the generation that was meant. */
  private readonly told = new Map<string, number>();

  /** Sends what is new in a plan; `send` gives false when a notice could not leave. */
  tell(actions: readonly Action[], send: (command: DrainShardCommand) => boolean): void {
    for (const action of actions) {
      if (action.kind === 'deleteReplica') this.told.delete(action.replicaId);
      if (action.kind === 'updateReplica') this.tellOf(action.record, send);
    }
  }

  private tellOf(record: ReplicaRecord, send: (command: DrainShardCommand) => boolean): void {
    const { id, generation, intent } = record;
    const isTold = this.told.get(id) === generation;
    if (intent === 'stop' || isTold === (intent === 'drain')) return;
    const notices = record.shards.map(({ nodeId, shardId }) => ({
      nodeId,
      shardId,
      generation,
      over: intent !== 'drain',
    }));
    if (!notices.map(send).every(Boolean)) return;
    if (intent === 'drain') this.told.set(id, generation);
    else this.told.delete(id);
  }
}
