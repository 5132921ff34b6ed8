/**
 * The nearest change that would make a placement fit, read off the explanation itself. Nearest means: the one with the least for
 * an operator to do, waiting before a word to us, a word to us before touching a machine.
 */
import type { NodeVerdict, ProfileExplanation, Reason } from '../cluster.js';
import type { ModelSpec, Profile } from '../model-spec.js';
import { bytes, counted } from './reasons.js';

interface Change {
  /** Lower is nearer. */
  readonly cost: number;
  readonly reason: Reason;
}

/** The nearest change over all profiles and nodes. Always says something. */
export function nearestChange(model: ModelSpec, profiles: readonly ProfileExplanation[]): Reason {
  const changes = profiles.flatMap((explained) => {
    const profile = model.profiles.find(({ name }) => name === explained.profile);
    return profile === undefined ? [] : changesFor(profile, explained);
  });
  let best: Change | undefined;
  for (const change of changes) if (best === undefined || change.cost < best.cost) best = change;
  return (
    best?.reason ?? {
      code: 'change_add_node',
      message: 'fits on no known node whatever is freed; add a node or another profile',
    }
  );
}

function changesFor(profile: Profile, explained: ProfileExplanation): readonly Change[] {
  const perNode = explained.nodes.flatMap((node) => nodeChange(profile, node));
  if (profile.shards > 1) {
    const gang = gangChange(profile, explained);
    return gang === undefined ? perNode : [gang];
  }
  const hole = holeChange(profile, explained);
  return hole === undefined ? perNode : [...perNode, hole];
}

/** What one node lacks, when it is a single kind of thing. */
function nodeChange(profile: Profile, node: NodeVerdict): readonly Change[] {
  const codes = new Set(node.reasons.map(({ code }) => code));
  const only = (...wanted: string[]) => codes.size > 0 && [...codes].every((code) => wanted.includes(code));
  const first = node.reasons[0];
  const on = node.nodeId;
  if (only('backoff'))
    return [change(1, 'change_wait', `fits on ${on} when its back-off is over: ${first?.message}`)];
  if (only('node_disconnected', 'node_not_reported', 'node_unseen'))
    return [change(2, 'change_wait', `fits once ${on} has reported`)];
  if (only('node_flapping'))
    return [change(3, 'change_wait', `fits on ${on} once it has stayed connected for a while`)];
  if (only('node_cordoned', 'node_draining')) return [change(10, 'change_uncordon', `uncordon ${on}`)];
  if (only('parked'))
    return [
      change(12, 'change_profile', `repair the cause on ${on} and restart the model: ${first?.message}`),
    ];
  if (only('gpus_too_few')) return gpuChange(profile, node);
  if (only('node_unknown'))
    return [
      change(25, 'change_start_agent', `start an agent with node id ${on}, or change the node selector`),
    ];
  if (only('label_mismatch'))
    return [change(30, 'change_label', `label ${on} so that it matches: ${first?.message}`)];
  if (only('no_free_port'))
    return [change(32, 'change_ports', `free or widen the port range: on ${on} ${first?.message}`)];
  if (only('engine_not_offered', 'engine_unavailable'))
    return [change(40, 'change_engine', `make ${profile.engine} available on ${on}: ${first?.message}`)];
  if (only('anti_affinity')) return [change(45, 'change_rule', `add a node: ${on} ${first?.message}`)];
  if (only('node_condition')) return [change(50, 'change_repair', `repair ${on}: ${first?.message}`)];
  if (only('node_unreachable', 'node_lost')) return [change(60, 'change_repair', `bring ${on} back`)];
  return [];
}

/** A node whose devices are the only obstacle: freeing memory where that is enough, else health. */
function gpuChange(profile: Profile, node: NodeVerdict): readonly Change[] {
  const usable = node.gpus.filter((gpu) => gpu.fits).length;
  const missing = profile.gpus - usable;
  const short = node.gpus
    .filter((gpu) => gpu.reasons.length > 0 && gpu.reasons.every(({ code }) => code === 'gpu_memory_short'))
    .map((gpu) => ({ gpu, shortBytes: gpu.reasons[0]?.numbers?.['shortBytes'] ?? 0 }))
    .toSorted((a, b) => a.shortBytes - b.shortBytes)
    .slice(0, missing);
  if (missing > 0 && short.length === missing) {
    const total = short.reduce((sum, one) => sum + one.shortBytes, 0);
    const where = short.map(({ gpu, shortBytes }) => `${bytes(shortBytes)} on ${node.nodeId}/${gpu.uuid}`);
    // Within the kind, the smallest shortfall is the nearest.
    return [
      change(
        15 + Math.min(1, total / 1e15),
        'change_free_memory',
        `fits if these are freed: ${where.join(', ')}`,
        { freeBytes: total },
      ),
    ];
  }
  const drained = node.gpus.filter(
    (gpu) => gpu.reasons.length > 0 && gpu.reasons.every(({ code }) => code === 'gpu_draining'),
  );
  if (missing > 0 && drained.length >= missing)
    return [change(11, 'change_uncordon', `uncordon the GPUs of ${node.nodeId}`)];
  return [];
}

/** Enough devices in all, but not on one node: B's classic "4 wanted, 2 + 2 free". */
function holeChange(profile: Profile, explained: ProfileExplanation): Change | undefined {
  if (profile.gpus === 0) return undefined;
  const holes = explained.nodes
    .filter((node) => node.reasons.every(({ code }) => code === 'gpus_too_few'))
    .map((node) => ({ node, free: freeOfOneType(node) }))
    .filter(({ node }) => node.gpus.length > 0)
    .toSorted((a, b) => b.free - a.free);
  const largest = holes[0];
  if (largest === undefined) return undefined;
  const shown = holes.slice(0, HOLES_SHOWN).map(({ node, free }) => `${node.nodeId} ${free} free`);
  const more = holes.length > HOLES_SHOWN ? `, ${holes.length - HOLES_SHOWN} more with no larger hole` : '';
  return change(
    20 + (profile.gpus - largest.free) / 100,
    'change_free_gpus',
    `needs ${profile.gpus} on one node; ${shown.join(', ')}${more} (largest hole ${largest.free})`,
    { needed: profile.gpus, largestHole: largest.free },
  );
}

/** Nodes named in a sentence about holes. */
const HOLES_SHOWN = 4;

function freeOfOneType(node: NodeVerdict): number {
  const counts = new Map<string, number>();
  for (const gpu of node.gpus) if (gpu.fits) counts.set(gpu.type, (counts.get(gpu.type) ?? 0) + 1);
  return Math.max(0, ...counts.values());
}

function gangChange(profile: Profile, explained: ProfileExplanation): Change | undefined {
  const fitting = explained.nodes.filter((node) => node.fits);
  const missing = profile.shards - fitting.length;
  if (missing <= 0) return undefined;
  const near = explained.nodes
    .filter((node) => !node.fits)
    .flatMap((node) => nodeChange(profile, node))
    .toSorted((a, b) => a.cost - b.cost)
    .slice(0, missing);
  const have = `needs ${counted(profile.shards, 'node')} with ${counted(profile.gpus, 'GPU')} each; ${counted(fitting.length, 'node')} fit`;
  if (near.length < missing)
    return change(70, 'change_add_node', `${have}; add ${counted(missing - near.length, 'node')}`);
  const cost = near.reduce((sum, one) => sum + one.cost, 0);
  return change(cost, 'change_gang', `${have}; ${near.map(({ reason }) => reason.message).join('; ')}`);
}

function change(
  cost: number,
  code: string,
  message: string,
  numbers?: Readonly<Record<string, number>>,
): Change {
  return { cost, reason: numbers === undefined ? { code, message } : { code, message, numbers } };
}
