import { describe, expect, it } from 'vitest';
import type { ReplicaRecord } from '../domain/cluster.js';
import type { Action } from '../domain/plan.js';
import { DrainNotices } from './drain-notices.js';
import type { DrainShardCommand } from './ports.js';

const update = (intent: ReplicaRecord['intent'], generation = 1): Action => ({
  kind: 'updateReplica',
  reason: { code: 'test', message: 'test' },
  record: {
    id: 'r1',
    generation,
    intent,
    shards: [
      { nodeId: 'n1', shardId: 'r1-0' },
      { nodeId: 'n2', shardId: 'r1-1' },
    ],
  } as unknown as ReplicaRecord,
});

describe('drain notices', () => {
  const sent: DrainShardCommand[] = [];
  const told = (notices: DrainNotices, action: Action, arrives = true): unknown => {
    sent.length = 0;
    notices.tell([action], (command) => sent.push(command) > 0 && arrives);
    return sent.map(({ nodeId, generation, over }) => [nodeId, generation, over]);
  };

  it('go to every shard once, and once more when the drain is called off', () => {
    const notices = new DrainNotices();
    expect(told(notices, update('run'))).toEqual([]);
    expect(told(notices, update('drain'))).toEqual([
      ['n1', 1, false],
      ['n2', 1, false],
    ]);
    expect(told(notices, update('drain'))).toEqual([]);
    expect(told(notices, update('run'))).toEqual([
      ['n1', 1, true],
      ['n2', 1, true],
    ]);
    expect(told(notices, update('run'))).toEqual([]);
  });

  it('go out again when they could not leave, and not for what is stopped anyway', () => {
    const notices = new DrainNotices();
    expect(told(notices, update('drain'), false)).toHaveLength(2);
    expect(told(notices, update('drain'))).toHaveLength(2);
    expect(told(notices, update('stop'))).toEqual([]);
    expect(told(notices, update('drain', 2))).toHaveLength(2);
  });
});
