/** What of a plan is worth telling: the timeline's entries for actions, bounds that were hit, and changes of state. */
import { replicaKey, type ReplicaRecord, type ReplicaView } from '../domain/cluster.js';
import { counted } from '../domain/placement/reasons.js';
import type { Snapshot } from '../domain/snapshot.js';
import type { Action, Plan, PlanEvent } from '../domain/plan.js';
import type { EventSubject } from '../events/event.js';
import type { EventInput } from '../events/event-log.js';

const ACTOR = 'reconciler';

/** What a plan was made from, as far as its story needs it: the records, for what is deleted, and the requests in flight. */
type Before = Pick<Snapshot, 'replicas' | 'inflight'>;

/** Entries for what the plan does and noticed. */
export function planEvents(plan: Plan, { replicas, inflight }: Before): readonly EventInput[] {
  const known = new Map(replicas.map((record) => [record.id, record]));
  return [
    ...plan.actions.flatMap((action) => actionEvent(action, known, inflight) ?? []),
    ...plan.events.map(noticed),
  ];
}

function actionEvent(
  action: Action,
  known: ReadonlyMap<string, ReplicaRecord>,
  inflight: Snapshot['inflight'],
): EventInput | undefined {
  const { reason } = action;
  switch (action.kind) {
    case 'createReplica':
      return { type: 'ReplicaCreated', ...about(action.record), reason, actor: ACTOR };
    case 'updateReplica':
      return updateEvent(action.record, known.get(action.record.id), reason);
    case 'deleteReplica': {
      const record = known.get(action.replicaId);
      if (record === undefined) return undefined;
      return { type: 'ReplicaDeleted', ...about(record), reason, actor: ACTOR };
    }
    case 'setNodeLiveness':
      return {
        type: `Node${capitalised(action.liveness)}`,
        severity: action.liveness === 'connected' ? 'info' : action.liveness === 'lost' ? 'error' : 'warning',
        subject: { kind: 'node', id: action.nodeId },
        reason,
        actor: ACTOR,
      };
    case 'putBackoff':
      return {
        type: action.record.permanent ? 'ReplicaFailed' : 'ReplicaBackingOff',
        severity: action.record.permanent ? 'error' : 'warning',
        subject: { kind: 'replica', id: action.record.replicaId },
        reason,
        actor: ACTOR,
        related: [
          { kind: 'model', id: action.record.model },
          { kind: 'node', id: action.record.nodeId },
        ],
      };
    case 'abortInflight': {
      const requests = inflight.get(replicaKey(action.replicaId, action.generation)) ?? 0;
      const message = `${counted(requests, 'request')} ended with an error: ${reason.message}`;
      return {
        type: 'RequestsEnded',
        severity: 'warning',
        subject: { kind: 'replica', id: action.replicaId },
        reason: { ...reason, message, numbers: { ...reason.numbers, requests } },
        actor: ACTOR,
      };
    }
    case 'startShard':
    case 'stopShard':
    case 'clearBackoff':
    case 'putLearned':
      return undefined;
  }
}

/** Of the many ways a record changes, those that people follow: where it is placed and what is wanted of it. */
function updateEvent(
  record: ReplicaRecord,
  before: ReplicaRecord | undefined,
  reason: EventInput['reason'],
): EventInput | undefined {
  const base = { ...about(record), reason, actor: ACTOR };
  if (before?.intent !== record.intent) return { type: `Replica${intentWord(record.intent)}`, ...base };
  if (before.generation !== record.generation && record.shards.length > 0) {
    return { type: 'ReplicaPlaced', ...base };
  }
  return undefined;
}

function intentWord(intent: ReplicaRecord['intent']): string {
  switch (intent) {
    case 'run':
      return 'Kept';
    case 'drain':
      return 'Draining';
    case 'stop':
      return 'Stopping';
  }
}

/** What of a replica's last look is compared with the next. */
export type SeenState = Pick<ReplicaView, 'state' | 'reason'>;

/** Entries for replicas that became Ready or stopped being so. */
export function stateEvents(
  before: ReadonlyMap<string, SeenState>,
  replicas: readonly ReplicaView[],
): readonly EventInput[] {
  return replicas.flatMap((replica): EventInput[] => {
    const seen = before.get(replica.record.id);
    const was = seen?.state;
    if (was === replica.state) return [];
    const base = { ...about(replica.record), actor: ACTOR };
    if (replica.state === 'ready' && seen?.reason?.code === 'awaits_agent') {
      const message = `generation ${replica.record.generation} was found running; nothing was started`;
      return [{ type: 'ReplicaAdopted', ...base, reason: { code: 'adopted', message } }];
    }
    if (replica.state === 'ready') {
      const reason = { code: 'ready', message: `generation ${replica.record.generation} answers` };
      return [{ type: 'ReplicaReady', ...base, reason }];
    }
    if (was !== 'ready' || (replica.state !== 'unhealthy' && replica.state !== 'unreachable')) return [];
    const reason = replica.reason ?? { code: replica.state, message: `it is ${replica.state}` };
    return [{ type: `Replica${capitalised(replica.state)}`, severity: 'warning', ...base, reason }];
  });
}

function about(record: ReplicaRecord): Pick<EventInput, 'subject' | 'related'> {
  const nodes = [...new Set(record.shards.map((shard) => shard.nodeId))];
  return {
    subject: { kind: 'replica', id: record.id },
    related: [
      { kind: 'model', id: record.model },
      ...nodes.map((id): EventSubject => ({ kind: 'node', id })),
    ],
  };
}

/** `node/n1` and the like; a code such as `drain_deadline` becomes `DrainDeadline`. */
function noticed(event: PlanEvent): EventInput {
  const at = event.subject.indexOf('/');
  const kind = event.subject.slice(0, at);
  const id = event.subject.slice(at + 1);
  const known = kind === 'node' || kind === 'model' || kind === 'replica' || kind === 'gpu';
  return {
    type: event.reason.code.split('_').map(capitalised).join(''),
    subject: known ? { kind, id } : { kind: 'server', id: event.subject },
    reason: event.reason,
    actor: ACTOR,
  };
}

function capitalised(word: string): string {
  return word.charAt(0).toUpperCase() + word.slice(1);
}
