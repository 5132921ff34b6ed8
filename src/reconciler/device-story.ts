/** The timeline's entries for what machines say of themselves: GPUs that fail and recover, conditions that come and go. */
import type { GpuReport, NodeCondition, NodeView } from '../domain/cluster.js';
import type { EventSubject } from '../events/event.js';
import type { EventInput } from '../events/event-log.js';
import { leftOut, ToldBound } from './told-bound.js';

type Node = Pick<NodeView, 'id' | 'reported' | 'gpus' | 'conditions' | 'shards'>;

/** What was last seen of a node; lists that are still the same objects need no second look. */
interface Seen {
  readonly gpus: readonly GpuReport[];
  readonly conditions: readonly NodeCondition[];
  /** Finding by device: state and reason. */
  readonly findings: ReadonlyMap<string, string>;
  readonly types: ReadonlySet<string>;
}

/** The last entry about something, as far as it is still in the timeline. */
export type LastTold = (kind: 'gpu' | 'node', id: string, types: readonly string[]) => string | undefined;

const TYPES = {
  healthy: 'GpuHealthy',
  suspect: 'GpuSuspect',
  excluded: 'GpuExcluded',
  unknown: 'GpuUnknown',
} as const satisfies Record<GpuReport['health']['state'], string>;
const SEVERITIES = { healthy: 'info', suspect: 'warning', excluded: 'error', unknown: 'warning' } as const;

export class DeviceStory {
  private readonly seen = new Map<string, Seen>();
  private readonly told = new ToldBound();

  /** Entries for what differs from the last look. `lastTold` keeps a restart of the server from telling all of it again. */
  tell(nodes: readonly Node[], nowMs: number, lastTold: LastTold): readonly EventInput[] {
    const events = nodes.flatMap((node) => this.ofNode(node, nowMs, lastTold));
    if (this.seen.size > nodes.length) {
      const present = new Set(nodes.map(({ id }) => id));
      for (const id of this.seen.keys()) if (!present.has(id)) this.seen.delete(id);
    }
    return events;
  }

  private ofNode(node: Node, nowMs: number, lastTold: LastTold): readonly EventInput[] {
    const before = this.seen.get(node.id);
    // Before its first report of this server life nothing is known that would be news.
    if (!node.reported || (before?.gpus === node.gpus && before.conditions === node.conditions)) return [];
    const findings = new Map(
      node.gpus.map(({ uuid, health }) => [uuid, `${health.state} ${health.reason ?? ''}`]),
    );
    const types = new Set(node.conditions.map(({ type }) => type));
    this.seen.set(node.id, { gpus: node.gpus, conditions: node.conditions, findings, types });
    return [
      ...node.gpus.flatMap((gpu) => this.ofGpu(node, gpu, before, nowMs, lastTold)),
      ...this.ofConditions(node, before, nowMs, lastTold),
    ];
  }

  private ofGpu(
    node: Node,
    gpu: GpuReport,
    before: Seen | undefined,
    nowMs: number,
    lastTold: LastTold,
  ): readonly EventInput[] {
    const { uuid, health } = gpu;
    const was = before?.findings.get(uuid);
    if (was === `${health.state} ${health.reason ?? ''}`) return [];
    const type = TYPES[health.state];
    if (was === undefined) {
      // A device that was never told of and is well is no news; nor is one of which this was the last word.
      const last = lastTold('gpu', uuid, Object.values(TYPES));
      if (last === type || (last === undefined && health.state === 'healthy')) return [];
    }
    const untold = this.told.next(`gpu ${uuid}`, nowMs);
    if (untold === undefined) return [];
    const words = [
      health.evidence ?? (health.state === 'healthy' ? 'nothing is wrong with it any more' : health.reason),
    ];
    if (health.clearedBy !== undefined) words.push(`cleared by ${health.clearedBy}`);
    return [
      {
        type,
        severity: SEVERITIES[health.state],
        subject: { kind: 'gpu', id: uuid },
        reason: {
          code: health.reason ?? health.state,
          message: `${gpu.type} of ${node.id}: ${words.filter(Boolean).join('; ')}${leftOut(untold)}`,
        },
        actor: 'agent',
        related: [{ kind: 'node', id: node.id }, ...replicasOn(node, uuid)],
      },
    ];
  }

  private ofConditions(
    node: Node,
    before: Seen | undefined,
    nowMs: number,
    lastTold: LastTold,
  ): readonly EventInput[] {
    const raised = node.conditions.filter(({ type }) => before?.types.has(type) !== true);
    const cleared = [...(before?.types ?? [])].filter(
      (type) => !node.conditions.some((one) => one.type === type),
    );
    const name = { raised: 'NodeConditionRaised', cleared: 'NodeConditionCleared' } as const;
    const entry = (type: string, what: keyof typeof name, message: string): EventInput[] => {
      if (before === undefined && lastTold('node', node.id, Object.values(name)) === name[what]) return [];
      const untold = this.told.next(`condition ${node.id} ${type}`, nowMs);
      if (untold === undefined) return [];
      return [
        {
          type: name[what],
          severity: what === 'raised' ? 'warning' : 'info',
          subject: { kind: 'node', id: node.id },
          reason: { code: type, message: `${message}${leftOut(untold)}` },
          actor: 'agent',
        },
      ];
    };
    return [
      ...raised.flatMap(({ type, reason, blocksPlacement }) =>
        entry(type, 'raised', `${type}: ${reason}${blocksPlacement ? '; nothing new is started there' : ''}`),
      ),
      ...cleared.flatMap((type) => entry(type, 'cleared', `${type} is over`)),
    ];
  }
}

function replicasOn({ shards }: Node, uuid: string): readonly EventSubject[] {
  const ids = shards
    .filter(({ phase, gpuUuids }) => phase !== 'exited' && gpuUuids.includes(uuid))
    .map(({ replicaId }) => replicaId);
  return [...new Set(ids)].map((id) => ({ kind: 'replica', id }));
}
