import { Inject, Injectable } from '@nestjs/common';
import { specDigest } from '../domain/catalog/spec-digest.js';
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
    const intent = this.intentFor(caller, node, request);
    const preview = request.target === 'drained' ? this.preview(reading, node, intent) : NO_PREVIEW;
    const changed = !sameIntent(node.intent, intent);
    if (planOnly)
      return schedulingResult(reading, { ...node, intent }, preview, false, planNotes(node, preview));
    const entry: AuditEntry = {
      caller,
      action: actionOf(request.target),
      target: request.gpu === undefined ? node.id : `${node.id}/${intent.gpuUuid ?? request.gpu}`,
      ...(request.reason === undefined ? {} : { detail: request.reason }),
    };
    // A drain under way may fill the very place that made it possible: asked again it is the same drain, not a new gap.
    if (!changed) return schedulingResult(reading, node, preview, false, ['it was so already']);
    this.refuseGap(node, intent, preview, entry);
    const ops = [this.cluster.inventory.intentOp(node.id, intent)];
    this.audit.commit(entry, ops, schedulingEvent(node, intent, entry));
    this.cluster.inventory.intentStored(node.id, intent);
    this.reconciler.wake();
    const now = this.cluster.read();
    return schedulingResult(now, this.cluster.node(now, node.id), preview, true, doneNotes(node, intent));
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
  restart(caller: Caller, name: string): ModelResultView {
    const model = this.cluster.model(name);
    if (this.isRestarting(model)) {
      return {
        model: model.name,
        changed: false,
        desired: model.replicas,
        notes: ['its restart is under way already', `watch it: llmgw ctl replicas --model ${model.name}`],
      };
    }
    const entry = { caller, action: 'restart', target: model.name };
    this.changeModel(entry, 'ModelRestarted', { restartedWallMs: this.settings.clock.wallMs() });
    return {
      model: model.name,
      changed: true,
      desired: model.replicas,
      notes: [
        `${model.name} is being replaced, new copies first`,
        `watch it: llmgw ctl replicas --model ${model.name}`,
      ],
    };
  }

  /** Whether a copy from before the last restart still runs: asked again, it is the same restart. */
  private isRestarting(model: ModelSpec): boolean {
    if (model.restartedWallMs === undefined) return false;
    const digests = new Set(model.profiles.map((profile) => specDigest(model, profile)));
    const replicas = this.cluster.read().replicasOf(model.name);
    return replicas.some(
      ({ record }) => record.intent === 'run' && record.shards.length > 0 && !digests.has(record.specDigest),
    );
  }

  /** Replaces one replica, the new one first; asked again while it is under way, nothing changes. */
  restartReplica(caller: Caller, id: string): ModelResultView {
    const reading = this.cluster.read();
    const { record } = this.cluster.replica(reading, id);
    const desired = reading.snapshot.models.find(({ name }) => name === record.model)?.replicas ?? 0;
    const answer = { model: record.model, replica: record.id, desired };
    if (record.intent !== 'run') {
      throw new OperatorError(
        'conflict',
        `replica ${record.id} is on its way out: ${record.intentReason.message}`,
      );
    }
    if (record.shards.length === 0) {
      throw new OperatorError(
        'conflict',
        `replica ${record.id} has no place yet, there is nothing to restart`,
        {
          hint: `why: llmgw ctl explain-placement ${record.model}`,
        },
      );
    }
    if (record.restart !== undefined)
      return { ...answer, changed: false, notes: ['its restart is under way already'] };
    const entry = { caller, action: 'restart', target: record.id };
    const value: ReplicaRecord = {
      ...record,
      restart: { actor: caller.name, atWallMs: this.settings.clock.wallMs() },
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
      notes: ['a new copy is started first', `watch it: llmgw ctl replicas --model ${record.model}`],
    };
  }

  /** Forgets a node that will not come back. Its replicas are treated as lost at once. */
  removeNode(caller: Caller, nodeId: string): string {
    const reading = this.cluster.read();
    const node = this.cluster.node(reading, nodeId);
    const entry = { caller, action: 'remove-node', target: node.id };
    if (node.streamSinceMs !== undefined) {
      this.audit.refused(entry);
      throw new OperatorError('conflict', `node ${node.id} is connected; it would be back at once`, {
        hint: `stop its agent first, or drain it: llmgw ctl drain ${node.id}`,
      });
    }
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
    change: { readonly replicas?: number; readonly restartedWallMs?: number },
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

  private refuseGap(node: NodeView, intent: SchedulingIntent, preview: DrainPlan, entry: AuditEntry): void {
    if (preview.gaps.length === 0 || intent.allowGap === true) return;
    this.audit.refused(entry);
    const models = preview.gaps.join(', ');
    throw new OperatorError(
      'refused',
      `draining ${node.id} would leave ${models} without a serving replica: ${preview.moves.find(({ target, stopFirst }) => target === undefined || stopFirst === true)?.reason.message ?? 'no other place'}`,
      {
        field: 'allowGap',
        hint: `repeat with --allow-gap to accept that, or see the plan: llmgw ctl drain ${node.id} --plan`,
      },
    );
  }
}

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

function doneNotes(node: NodeView, intent: SchedulingIntent): readonly string[] {
  switch (intent.target) {
    case 'schedulable':
      return [`${node.id} takes new replicas again`];
    case 'cordoned':
      return [
        `${node.id} takes no new replicas; what runs there stays`,
        `undo: llmgw ctl uncordon ${node.id}`,
      ];
    case 'drained':
      return [`follow it: llmgw ctl node ${node.id} --watch`, `cancel it: llmgw ctl uncordon ${node.id}`];
  }
}
