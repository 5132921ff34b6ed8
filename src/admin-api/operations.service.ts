import { Inject, Injectable } from '@nestjs/common';
import { restartOf } from '../domain/catalog/spec-digest.js';
import type { NodeView, ReplicaRecord, SchedulingIntent } from '../domain/cluster.js';
import type { ModelSpec } from '../domain/model-spec.js';
import type { EventInput } from '../events/event-log.js';
import { planDrain, type DrainPlan } from '../domain/reconcile/plan-drain.js';
import { RECONCILER_SETTINGS, type ReconcilerSettings } from '../reconciler/reconciler-settings.js';
import { ReconcilerService } from '../reconciler/reconciler.service.js';
import { OperatorError } from '../shared/errors.js';
import { AuditLog, type AuditEntry } from './audit-log.js';
import { ClusterReader, type ClusterReading } from './cluster-reader.js';
import { schedulingView } from './node-views.js';
import type { Caller } from './roles.js';
import type { ModelResultView } from './views/models.js';
import type { SchedulingResultView } from './views/nodes.js';

/** Largest replica count taken; more is a typing error. */
export const REPLICAS_MAX = 1_000;

/** What is asked of a node. */
export interface SchedulingRequest {
  readonly target: SchedulingIntent['target'];
  readonly reason?: string;
  readonly deadlineMs?: number;
  readonly streamGraceMs?: number;
  readonly allowGap?: boolean;
  /** A device of the node, or the beginning of its UUID. */
  readonly gpu?: string;
}

const NO_PREVIEW: DrainPlan = { moves: [], gaps: [] };

/** What operators change. Every change is stored, with who and why, before anything acts on it; then the loop looks. */
@Injectable()
export class OperationsService {
  constructor(
    @Inject(ClusterReader) private readonly cluster: ClusterReader,
    @Inject(ReconcilerService) private readonly reconciler: ReconcilerService,
    @Inject(AuditLog) private readonly audit: AuditLog,
    @Inject(RECONCILER_SETTINGS) private readonly settings: ReconcilerSettings,
  ) {}

  /** Cordon, uncordon, drain. With `planOnly` nothing changes and the answer shows what would. */
  setScheduling(
    caller: Caller,
    nodeId: string,
    request: SchedulingRequest,
    planOnly: boolean,
  ): SchedulingResultView {
    const reading = this.cluster.read();
    const node = this.cluster.node(reading, nodeId);
    const entry: AuditEntry = {
      caller,
      action: actionOf(request.target),
      target: request.gpu === undefined ? node.id : `${node.id}/${gpuOf(node, request.gpu)}`,
      ...(request.reason === undefined ? {} : { detail: request.reason }),
    };
    const ask = () => this.intentFor(caller, node, request);
    const intent = planOnly ? ask() : this.audit.attempt(entry, ask);
    const preview = request.target === 'drained' ? this.preview(reading, node, intent) : NO_PREVIEW;
    const changed = !sameIntent(node.intent, intent);
    if (planOnly && changed)
      return schedulingResult(reading, { ...node, intent }, preview, false, planNotes(node, preview));
    // Asked again it is the same drain: what is told is how far it is.
    if (!changed) return schedulingResult(reading, node, preview, false, soAlreadyNotes(reading, node));
    this.audit.attempt(entry, () => this.refuseGap(node, intent, preview));
    const ops = [this.cluster.inventory.intentOp(node.id, intent)];
    this.audit.commit(entry, ops, schedulingEvent(node, intent, entry));
    this.cluster.inventory.intentStored(node.id, intent);
    this.reconciler.wake();
    const now = this.cluster.read();
    const notes = [...insteadNotes(node, intent), ...doneNotes(node, intent)];
    return schedulingResult(now, this.cluster.node(now, node.id), preview, true, notes);
  }

  scale(caller: Caller, name: string, replicas: number): ModelResultView {
    const model = this.cluster.model(name);
    if (model.replicas === replicas) {
      return {
        model: model.name,
        changed: false,
        desired: replicas,
        notes: [`it already wants ${replicas}`],
      };
    }
    const entry = { caller, action: 'scale', target: model.name, detail: `${model.replicas} to ${replicas}` };
    this.changeModel(entry, 'ModelScaled', { replicas });
    const declared = this.cluster.catalog.declaredReplicas(model.name);
    const differs = declared !== replicas ? ` (the configuration says ${declared})` : '';
    return {
      model: model.name,
      changed: true,
      desired: replicas,
      notes: [
        `from ${model.replicas} to ${replicas} replicas${differs}`,
        `watch it: llmgw ctl replicas --model ${model.name}`,
      ],
    };
  }

  /** Replaces every replica, one by one and the new one first: an ordinary rolling change of a new digest. */
  restart(caller: Caller, name: string, allowGap: boolean): ModelResultView {
    const model = this.cluster.model(name);
    const answer = { model: model.name, desired: model.replicas };
    const watch = `watch it: llmgw ctl replicas --model ${model.name}`;
    const entry = { caller, action: 'restart', target: model.name, ...detailOf(allowGap) };
    if (this.isRestarting(model)) {
      // One that stands still for want of room may be given leave for a gap; it is the same restart then.
      const news = allowGap && model.restartAllowsGap !== true;
      if (news) this.changeModel(entry, 'ModelRestarted', { restartAllowsGap: true });
      return { ...answer, changed: news, notes: [underWayNote(news), watch] };
    }
    this.changeModel(entry, 'ModelRestarted', {
      restartedWallMs: this.restartMark(model),
      restartedBy: caller.name,
      restartAllowsGap: allowGap,
    });
    return { ...answer, changed: true, notes: [`${model.name} is being replaced, new copies first`, watch] };
  }

  /** Whether a copy from before the last restart still runs: asked again, it is the same restart. */
  private isRestarting(model: ModelSpec): boolean {
    const { restartedWallMs = 0 } = model;
    const replicas = this.cluster.read().replicasOf(model.name);
    return replicas.some(
      ({ record }) =>
        record.intent === 'run' && record.shards.length > 0 && restartOf(record.specDigest) < restartedWallMs,
    );
  }

  /** Later than every restart its copies were started after: the wall clock may have been set back, or the state restored. */
  private restartMark(model: ModelSpec): number {
    const replicas = this.cluster.read().replicasOf(model.name);
    const known = replicas.map(({ record }) => restartOf(record.specDigest));
    return Math.max(this.settings.clock.wallMs(), 1 + Math.max(model.restartedWallMs ?? 0, ...known));
  }

  /** Replaces one replica, the new one first; asked again while it is under way, nothing changes. */
  restartReplica(caller: Caller, id: string, allowGap: boolean): ModelResultView {
    const reading = this.cluster.read();
    const { record } = this.cluster.namedReplica(reading, id);
    const entry = { caller, action: 'restart', target: record.id, ...detailOf(allowGap) };
    this.audit.attempt(entry, () => refuseUnplaced(record));
    const desired = reading.snapshot.models.find(({ name }) => name === record.model)?.replicas ?? 0;
    const answer = { model: record.model, replica: record.id, desired };
    const { restart } = record;
    if (restart !== undefined && (!allowGap || restart.allowGap === true))
      return { ...answer, changed: false, notes: [underWayNote(false)] };
    const value: ReplicaRecord = {
      ...record,
      restart: {
        ...(restart ?? { actor: caller.name, atWallMs: this.settings.clock.wallMs() }),
        ...(allowGap ? { allowGap } : {}),
      },
    };
    this.audit.commit(entry, [{ op: 'put', collection: 'replicas', key: record.id, value }], {
      type: 'ReplicaRestarted',
      subject: { kind: 'replica', id: record.id },
      reason: { code: 'operator', message: `restart by ${caller.name}` },
      actor: caller.name,
      related: [{ kind: 'model', id: record.model }],
    });
    this.reconciler.wake();
    return {
      ...answer,
      changed: true,
      notes: [
        restart === undefined ? 'a new copy is started first' : underWayNote(true),
        `watch it: llmgw ctl replicas --model ${record.model}`,
      ],
    };
  }

  /** Forgets a node that will not come back. Its replicas are treated as lost at once. */
  removeNode(caller: Caller, nodeId: string): string {
    const reading = this.cluster.read();
    const node = this.cluster.namedNode(reading, nodeId);
    const entry = { caller, action: 'remove-node', target: node.id };
    this.audit.attempt(entry, () => refuseConnected(node));
    this.audit.commit(entry, this.cluster.inventory.removalOps(node.id), {
      type: 'NodeRemoved',
      severity: 'warning',
      subject: { kind: 'node', id: node.id },
      reason: { code: 'operator', message: `removed by ${caller.name}` },
      actor: caller.name,
    });
    this.cluster.inventory.forgotten(node.id);
    this.reconciler.wake();
    return node.id;
  }

  private changeModel(
    entry: AuditEntry,
    type: string,
    change: Parameters<ClusterReader['catalog']['overrideOp']>[1],
  ): void {
    const { caller, target, detail, action } = entry;
    const by = { actor: caller.name, atWallMs: this.settings.clock.wallMs() };
    this.audit.commit(entry, [this.cluster.catalog.overrideOp(target, change, by)], {
      type,
      subject: { kind: 'model', id: target },
      reason: {
        code: 'operator',
        message: `${action}${detail === undefined ? '' : ` ${detail}`} by ${caller.name}`,
      },
      actor: caller.name,
    });
    this.cluster.catalog.overridesStored();
    this.reconciler.wake();
  }

  // ------------------------------------------------------------ scheduling

  private intentFor(caller: Caller, node: NodeView, request: SchedulingRequest): SchedulingIntent {
    const gpuUuid = request.gpu === undefined ? undefined : gpuOf(node, request.gpu);
    const present = node.intent;
    // What is asked of one device would take the place of what was asked of all, and open the others again.
    if (gpuUuid !== undefined && present.target !== 'schedulable' && present.gpuUuid === undefined) {
      throw new OperatorError(
        'conflict',
        `node ${node.id} is ${present.target} as a whole, ${gpuUuid} with it`,
        { field: 'gpu', hint: `give the machine back first: llmgw ctl uncordon ${node.id}` },
      );
    }
    if (gpuUuid !== undefined && present.gpuUuid !== undefined && present.gpuUuid !== gpuUuid) {
      throw new OperatorError(
        'conflict',
        `${present.gpuUuid} of node ${node.id} is ${present.target} already; one device of a node at a time`,
        { field: 'gpu', hint: `finish it first: llmgw ctl uncordon ${node.id}` },
      );
    }
    return {
      target: request.target,
      actor: caller.name,
      atWallMs: this.settings.clock.wallMs(),
      sequence: present.sequence + 1,
      // A device that is given back leaves no mark on the node.
      ...(gpuUuid === undefined || request.target === 'schedulable' ? {} : { gpuUuid }),
      ...(request.reason === undefined ? {} : { reason: request.reason }),
      ...(request.deadlineMs === undefined ? {} : { deadlineMs: request.deadlineMs }),
      ...(request.streamGraceMs === undefined ? {} : { streamGraceMs: request.streamGraceMs }),
      ...(request.allowGap === undefined ? {} : { allowGap: request.allowGap }),
    };
  }

  private preview(reading: ClusterReading, node: NodeView, intent: SchedulingIntent): DrainPlan {
    const { policy, random, intervalMs } = this.settings;
    return planDrain({
      snapshot: reading.snapshot,
      policy,
      intervalMs,
      context: { nowMs: reading.times.nowMs, nowWallMs: reading.times.nowWallMs, random },
      node,
      intent,
      replicas: reading.replicas,
      inflight: (record) => reading.inflight(record),
    });
  }

  private refuseGap(node: NodeView, intent: SchedulingIntent, preview: DrainPlan): void {
    if (preview.gaps.length === 0 || intent.allowGap === true) return;
    const models = preview.gaps.join(', ');
    throw new OperatorError(
      'refused',
      `draining ${node.id} would leave ${models} without a serving replica: ${preview.moves.find(({ model, gapMs }) => preview.gaps.includes(model) && gapMs !== 0)?.reason.message ?? 'no other place'}`,
      {
        field: 'allowGap',
        hint: `repeat with --allow-gap to accept that, or see the plan: llmgw ctl drain ${node.id} --plan`,
      },
    );
  }
}

function refuseConnected(node: NodeView): void {
  if (node.streamSinceMs === undefined) return;
  throw new OperatorError('conflict', `node ${node.id} is connected; it would be back at once`, {
    hint: `stop its agent first, or drain it: llmgw ctl drain ${node.id}`,
  });
}

function refuseUnplaced(record: ReplicaRecord): void {
  if (record.intent !== 'run')
    throw new OperatorError(
      'conflict',
      `replica ${record.id} is on its way out: ${record.intentReason.message}`,
    );
  if (record.shards.length > 0) return;
  throw new OperatorError('conflict', `replica ${record.id} has no place yet, there is nothing to restart`, {
    hint: `why: llmgw ctl explain-placement ${record.model}`,
  });
}

const detailOf = (allowGap: boolean): { readonly detail?: string } =>
  allowGap ? { detail: 'with leave for a gap' } : {};

const underWayNote = (withLeave: boolean): string =>
  `its restart is under way already${withLeave ? '; now it has leave for a gap' : ''}`;

const EVENT_OF = {
  schedulable: 'NodeUncordoned',
  cordoned: 'NodeCordoned',
  drained: 'DrainRequested',
} as const;

function schedulingEvent(node: NodeView, intent: SchedulingIntent, entry: AuditEntry): EventInput {
  const why = intent.reason === undefined ? '' : `: ${intent.reason}`;
  return {
    type: EVENT_OF[intent.target],
    subject: { kind: 'node', id: node.id },
    reason: { code: 'operator', message: `${entry.action} by ${intent.actor}${why}` },
    actor: intent.actor,
    ...(intent.gpuUuid === undefined ? {} : { related: [{ kind: 'gpu', id: intent.gpuUuid }] }),
  };
}

function actionOf(target: SchedulingIntent['target']): string {
  switch (target) {
    case 'schedulable':
      return 'uncordon';
    case 'cordoned':
      return 'cordon';
    case 'drained':
      return 'drain';
  }
}

function gpuOf(node: NodeView, given: string): string {
  const uuids = node.gpus.map((gpu) => gpu.uuid);
  const found = uuids.includes(given) ? [given] : uuids.filter((uuid) => uuid.startsWith(given));
  const [only, ...others] = found;
  if (only !== undefined && others.length === 0) return only;
  const listed = uuids.length === 0 ? 'it has none' : `it has ${uuids.join(', ')}`;
  throw new OperatorError('not_found', `node ${node.id} has no one GPU "${given}"; ${listed}`, {
    field: 'gpu',
  });
}

/** Asked again for what is so already: nothing changes, not even who asked first. */
function sameIntent(a: SchedulingIntent, b: SchedulingIntent): boolean {
  return (
    a.target === b.target &&
    a.gpuUuid === b.gpuUuid &&
    a.deadlineMs === b.deadlineMs &&
    a.streamGraceMs === b.streamGraceMs &&
    a.allowGap === b.allowGap
  );
}

function schedulingResult(
  reading: ClusterReading,
  node: NodeView,
  preview: DrainPlan,
  changed: boolean,
  notes: readonly string[],
): SchedulingResultView {
  return {
    node: node.id,
    changed,
    scheduling: schedulingView(reading, node),
    moves: preview.moves,
    ...(preview.expectedMs === undefined ? {} : { expectedMs: preview.expectedMs }),
    gapExpected: preview.gaps.length > 0,
    notes,
  };
}

function planNotes(node: NodeView, preview: DrainPlan): readonly string[] {
  if (preview.gaps.length === 0) return ['nothing was changed; this is what would happen'];
  return [
    'nothing was changed; this is what would happen',
    `${preview.gaps.join(', ')} would be without a serving replica: llmgw ctl drain ${node.id} --allow-gap accepts that`,
  ];
}

/** Who asked first and what is left of it: whoever asks again wants to know how far it is. */
function soAlreadyNotes(reading: ClusterReading, node: NodeView): readonly string[] {
  const { state, waitingFor } = schedulingView(reading, node);
  if (node.intent.sequence === 0) return ['it was so already'];
  const why = node.intent.reason === undefined ? '' : `: ${node.intent.reason}`;
  const already = `it was so already, by ${node.intent.actor}${why}`;
  if (state !== 'draining') return [already];
  return [
    already,
    ...waitingFor.map(({ replicaId, reason }) => `${replicaId}: ${reason.message}`),
    ...doneNotes(node, node.intent),
  ];
}

/** One intent at a time: what was asked of a device before is over when something is asked of the machine. */
function insteadNotes(
  { intent: before }: NodeView,
  { target, gpuUuid }: SchedulingIntent,
): readonly string[] {
  if (before.gpuUuid === undefined || gpuUuid !== undefined || target === 'schedulable') return [];
  return [`this takes the place of: ${before.gpuUuid} ${before.target} by ${before.actor}`];
}

function doneNotes(node: NodeView, intent: SchedulingIntent): readonly string[] {
  switch (intent.target) {
    case 'schedulable':
      return [
        `${node.id} takes new replicas again${node.streamSinceMs === undefined ? ' once its agent is back' : ''}`,
      ];
    case 'cordoned':
      return [
        `${node.id} takes no new replicas; what runs there stays`,
        `undo: llmgw ctl uncordon ${node.id}`,
      ];
    case 'drained':
      return [`follow it: llmgw ctl node ${node.id} --watch`, `cancel it: llmgw ctl uncordon ${node.id}`];
  }
}
