import { describe, expect, it } from 'vitest';
import { replicaKey } from '../domain/cluster.js';
import type { Plan } from '../domain/plan.js';
import { planEvents } from './plan-events.js';

describe('the story of a plan', () => {
  it('says how many requests were ended, and why', () => {
    const reason = { code: 'drain_deadline', message: 'the deadline of the drain', numbers: { x: 1 } };
    const abort = { kind: 'abortInflight', replicaId: 'm-1', generation: 2, reason } as const;
    const plan = { actions: [abort], events: [] } as unknown as Plan;
    const inflight = new Map([
      [replicaKey('m-1', 2), 7],
      [replicaKey('m-1', 1), 1],
    ]);
    expect(planEvents(plan, { replicas: [], inflight })).toMatchObject([
      {
        type: 'RequestsEnded',
        reason: {
          code: 'drain_deadline',
          message: '7 requests ended with an error: the deadline of the drain',
          numbers: { x: 1, requests: 7 },
        },
      },
    ]);
  });
});
