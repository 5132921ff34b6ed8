/**
 * What keeps a shard off a node or a device. Each filter is a test and the sentence for when it holds, side by side: placing runs
 * only the tests and stops at the first, explaining runs all of them and words each. Being the same objects, the two cannot
 * disagree.
 */
import { contentDigest, sameContent } from '../catalog/spec-digest.js';
import type { EngineOffer, GpuReport, LearnedFact, NodeView, Reason } from '../cluster.js';
import type { ModelSpec, Profile } from '../model-spec.js';
import { freeMemoryBytes, type GpuHolder, holdersOf, type NodeBookings } from './bookings.js';
import { freePorts, hasFreePorts } from './ports.js';
import {
  awaitingFirstReport,
  bytes,
  duration,
  type PlacementReasonCode,
  placementReason,
} from './reasons.js';
import { labelOf, matchesGlob, type PlacementQuery, type PlacementWorld } from './world.js';

/** One node as a candidate for one shard. */
export interface NodeCandidate {
  readonly world: PlacementWorld;
  readonly query: PlacementQuery;
  readonly model: ModelSpec;
  readonly profile: Profile;
  readonly node: NodeView;
  readonly bookings: NodeBookings;
}

/** One device as a candidate. */
export interface GpuCandidate {
  readonly node: NodeView;
  readonly gpu: GpuReport;
  readonly profile: Profile;
  readonly holders: readonly GpuHolder[];
  /** Bytes wanted, declared or learned, whichever is more; undefined = not known. */
  readonly neededBytes: number | undefined;
  /** Bytes free; undefined = not known. */
  readonly freeBytes: number | undefined;
}

interface Filter<Candidate> {
  readonly blocks: (candidate: Candidate) => boolean;
  readonly reason: (candidate: Candidate) => Reason;
}

// ---------------------------------------------------------------- nodes

/** Liveness first: every other fact of a silent node is old. */
const livenessFilter: Filter<NodeCandidate> = {
  blocks: ({ node }) => node.liveness !== 'connected',
  reason: ({ node, world }) => {
    const why = node.livenessReason === undefined ? '' : `: ${node.livenessReason}`;
    switch (node.liveness) {
      case 'unseen':
        return placementReason('node_unseen', awaitingFirstReport(node, world.nowWallMs));
      case 'unreachable':
        return placementReason('node_unreachable', `no report reaches us${why}`);
      case 'lost':
        return placementReason('node_lost', `given up${why}`);
      case 'flapping':
        return placementReason('node_flapping', `comes and goes too often${why}`);
      case 'connected':
        return placementReason('node_not_reported', 'connected');
    }
  },
};

const streamFilter: Filter<NodeCandidate> = {
  blocks: ({ node }) => node.liveness === 'connected' && node.streamSinceMs === undefined,
  reason: () => placementReason('node_disconnected', 'its stream is closed at this moment'),
};

const reportedFilter: Filter<NodeCandidate> = {
  blocks: ({ node }) => !node.reported,
  reason: () => placementReason('node_not_reported', 'no full report has arrived yet'),
};

const cordonFilter: Filter<NodeCandidate> = {
  blocks: ({ node }) => node.intent.gpuUuid === undefined && node.intent.target !== 'schedulable',
  reason: ({ node }) => {
    const { target, actor, reason } = node.intent;
    const why = reason === undefined ? '' : `: ${reason}`;
    return target === 'drained'
      ? placementReason('node_draining', `being drained by ${actor}${why}`)
      : placementReason('node_cordoned', `cordoned by ${actor}${why}`);
  },
};

const conditionFilter: Filter<NodeCandidate> = {
  blocks: ({ node }) => node.conditions.some((condition) => condition.blocksPlacement),
  reason: ({ node }) => {
    const blocking = node.conditions.filter((condition) => condition.blocksPlacement);
    const text = blocking.map(({ type, reason }) => `${type} (${reason})`).join(', ');
    return placementReason('node_condition', text);
  },
};

const engineFilter: Filter<NodeCandidate> = {
  blocks: ({ node, profile }) => offerOf(node, profile)?.unavailable !== undefined || !offerOf(node, profile),
  reason: ({ node, profile }) => {
    const offer = offerOf(node, profile);
    if (offer?.unavailable !== undefined)
      return placementReason('engine_unavailable', `${profile.engine}: ${offer.unavailable}`);
    const offered = node.engines.map(({ kind }) => kind).join(', ') || 'none';
    return placementReason('engine_not_offered', `does not offer ${profile.engine}; offers ${offered}`);
  },
};

const labelFilter: Filter<NodeCandidate> = {
  blocks: ({ node, model }) => {
    const { nodeSelector } = model.placement;
    for (const key in nodeSelector) if (labelOf(node, key) !== nodeSelector[key]) return true;
    return false;
  },
  reason: ({ node, model }) => {
    const misses = Object.entries(model.placement.nodeSelector)
      .filter(([key, wanted]) => labelOf(node, key) !== wanted)
      .map(([key, wanted]) => {
        const has = labelOf(node, key);
        return `wants ${key}=${wanted}, has ${has === undefined ? 'none' : `${key}=${has}`}`;
      });
    return placementReason('label_mismatch', misses.join('; '));
  },
};

const antiAffinityFilter: Filter<NodeCandidate> = {
  blocks: ({ bookings, model }) => model.placement.antiAffinity && (bookings.models.get(model.name) ?? 0) > 0,
  reason: ({ bookings, model }) => {
    const count = bookings.models.get(model.name) ?? 0;
    return placementReason('anti_affinity', `already runs ${count} of ${model.name}`, { count });
  },
};

const parkedFilter: Filter<NodeCandidate> = {
  blocks: ({ world, model, profile, node }) => world.failures.parked(model, profile, node.id) !== undefined,
  reason: ({ world, model, profile, node }) => {
    const record = world.failures.parked(model, profile, node.id);
    const said = record?.lastMessage === undefined ? '' : `: ${record.lastMessage}`;
    return placementReason(
      'parked',
      `${profile.name} cannot work here (${record?.cause ?? 'unknown'})${said}; a changed profile or a restart of the model clears it`,
    );
  },
};

const backoffFilter: Filter<NodeCandidate> = {
  blocks: (candidate) => backoffLeftMs(candidate) > 0,
  reason: (candidate) => {
    const leftMs = backoffLeftMs(candidate);
    const records = candidate.world.failures.of(candidate.query.replicaId, candidate.node.id);
    const failures = records.reduce((sum, record) => sum + record.failures, 0);
    const cause = records.at(-1)?.cause ?? 'unknown';
    return placementReason(
      'backoff',
      `${candidate.query.replicaId} failed here ${failures} times, last by ${cause}; next try in ${duration(leftMs)}`,
      { failures, leftMs },
    );
  },
};

/** In the order in which they are told. */
export const NODE_FILTERS: readonly Filter<NodeCandidate>[] = [
  livenessFilter,
  streamFilter,
  reportedFilter,
  cordonFilter,
  conditionFilter,
  engineFilter,
  labelFilter,
  antiAffinityFilter,
  parkedFilter,
  backoffFilter,
  {
    blocks: ({ world, node, bookings, profile }) =>
      !hasFreePorts(node, bookings, world.portRange, portsNeeded(profile)),
    reason: ({ world, node, bookings, profile }) => {
      const free = freePorts(node, bookings, world.portRange);
      const needed = portsNeeded(profile);
      const [first, last] = world.portRange;
      return placementReason('no_free_port', `needs ${needed} of ${first}-${last}, ${free} free`, {
        needed,
        free,
      });
    },
  },
];

/** A gang's every rank needs its own port and the rendezvous port. */
export function portsNeeded(profile: Profile): number {
  return profile.shards > 1 ? 2 : 1;
}

function offerOf(node: NodeView, profile: Profile): EngineOffer | undefined {
  for (const offer of node.engines) if (offer.kind === profile.engine) return offer;
  return undefined;
}

/**
 * Time left of the replica's back-off on the node. Never believed to be longer than the delay that was given: a wall clock that
 * was set back must not park a replica for hours.
 */
function backoffLeftMs({ world, query, node }: NodeCandidate): number {
  let left = 0;
  for (const record of world.failures.of(query.replicaId, node.id)) {
    if (record.permanent) continue;
    const remaining = record.untilWallMs - world.nowWallMs;
    if (remaining <= record.delayMs) left = Math.max(left, remaining);
  }
  return left;
}

// ---------------------------------------------------------------- devices

/** Whether a device is of the type the profile wants. */
export function fitsType(
  profile: Pick<Profile, 'gpuType'>,
  gpu: Pick<GpuReport, 'vendor' | 'type'>,
): boolean {
  const pattern = profile.gpuType;
  if (pattern === undefined) return true;
  return matchesGlob(pattern, pattern.includes('/') ? `${gpu.vendor}/${gpu.type}` : gpu.type);
}

const typeFilter: Filter<GpuCandidate> = {
  blocks: ({ gpu, profile }) => !fitsType(profile, gpu),
  reason: ({ gpu, profile }) =>
    placementReason('gpu_type_mismatch', `is ${gpu.vendor}/${gpu.type}, wants ${profile.gpuType ?? '*'}`),
};

const HEALTH_CODES = {
  healthy: 'gpu_suspect',
  suspect: 'gpu_suspect',
  excluded: 'gpu_excluded',
  unknown: 'gpu_not_reported',
} as const satisfies Record<GpuReport['health']['state'], PlacementReasonCode>;

const healthFilter: Filter<GpuCandidate> = {
  blocks: ({ gpu }) => gpu.health.state !== 'healthy',
  reason: ({ gpu }) => {
    const { state, reason, evidence, clearedBy } = gpu.health;
    const code = HEALTH_CODES[state];
    const parts = [reason ?? 'no reason given', evidence, clearedBy && `cleared by ${clearedBy}`];
    return placementReason(code, parts.filter(Boolean).join('; '));
  },
};

const gpuIntentFilter: Filter<GpuCandidate> = {
  blocks: ({ node, gpu }) => node.intent.gpuUuid === gpu.uuid && node.intent.target !== 'schedulable',
  reason: ({ node }) =>
    placementReason(
      'gpu_draining',
      `${node.intent.target === 'drained' ? 'being drained' : 'cordoned'} by ${node.intent.actor}`,
    ),
};

/** A holder that takes the device whole leaves nothing to share, whatever this profile needs. */
const heldFilter: Filter<GpuCandidate> = {
  blocks: ({ holders }) => holders.some((holder) => holder.memoryBytes === undefined),
  reason: ({ holders }) => placementReason('gpu_held', `held whole by ${names(holders)}`),
};

const sharedFilter: Filter<GpuCandidate> = {
  blocks: ({ profile, holders }) =>
    profile.gpuMemoryBytes === undefined &&
    holders.length > 0 &&
    holders.every((holder) => holder.memoryBytes !== undefined),
  reason: ({ holders }) =>
    placementReason('gpu_shared', `partly held by ${names(holders)}; the profile declares no memory need`),
};

const foreignFilter: Filter<GpuCandidate> = {
  blocks: ({ gpu, neededBytes }) => neededBytes === undefined && gpu.foreign.length > 0,
  reason: ({ gpu }) =>
    placementReason('gpu_foreign', `used by ${strangers(gpu)}; the profile declares no memory need`),
};

/** Processes of others that a sentence names. */
const STRANGERS_NAMED_MAX = 4;

function strangers({ foreign }: GpuReport): string {
  const named = foreign
    .slice(0, STRANGERS_NAMED_MAX)
    .map(
      ({ pid, name, memoryBytes }) =>
        `pid ${pid}${name === undefined ? '' : ` (${name})`}` +
        (memoryBytes === undefined ? '' : ` ${bytes(memoryBytes)}`),
    );
  const more = foreign.length - named.length;
  return more === 0 ? named.join(', ') : `${named.join(', ')} and ${more} more`;
}

/** What a driver and a display take on an otherwise empty device; more than this is somebody's work. */
const IDLE_USE_BYTES = 1024 ** 3;

const inUseFilter: Filter<GpuCandidate> = {
  blocks: ({ gpu, neededBytes, holders }) =>
    neededBytes === undefined &&
    holders.length === 0 &&
    gpu.foreign.length === 0 &&
    (gpu.memoryUsedBytes ?? 0) > IDLE_USE_BYTES,
  reason: ({ gpu }) => {
    const usedBytes = gpu.memoryUsedBytes ?? 0;
    return placementReason('gpu_in_use', `${bytes(usedBytes)} in use by no process we see`, { usedBytes });
  },
};

const memoryUnknownFilter: Filter<GpuCandidate> = {
  blocks: ({ gpu, neededBytes, freeBytes }) =>
    freeBytes === undefined && (gpu.vendor !== 'static' || neededBytes !== undefined),
  reason: ({ gpu }) =>
    placementReason(
      'gpu_memory_unknown',
      gpu.memoryTotalBytes === undefined ? 'total memory not reported' : 'memory in use not reported',
    ),
};

const memoryShortFilter: Filter<GpuCandidate> = {
  blocks: ({ neededBytes, freeBytes }) =>
    neededBytes !== undefined && freeBytes !== undefined && freeBytes < neededBytes,
  reason: ({ gpu, neededBytes = 0, freeBytes = 0, holders }) => {
    const foreign = gpu.foreign.length === 0 ? '' : `, used by ${strangers(gpu)}`;
    const held = holders.length === 0 ? '' : `, held by ${names(holders)}`;
    const total = bytes(gpu.memoryTotalBytes ?? 0);
    return placementReason(
      'gpu_memory_short',
      `needs ${bytes(neededBytes)}, ${bytes(freeBytes)} of ${total} free${held}${foreign}`,
      { neededBytes, freeBytes, shortBytes: neededBytes - freeBytes },
    );
  },
};

export const GPU_FILTERS: readonly Filter<GpuCandidate>[] = [
  typeFilter,
  healthFilter,
  gpuIntentFilter,
  heldFilter,
  sharedFilter,
  foreignFilter,
  inUseFilter,
  memoryUnknownFilter,
  memoryShortFilter,
];

function names(holders: readonly GpuHolder[]): string {
  return holders.map(({ shardId }) => shardId).join(', ');
}

/** The measured peak, if it was measured on what would be started: of before a change it would keep a smaller engine out for ever. */
function peakOf(fact: LearnedFact | undefined, model: ModelSpec, profile: Profile): number | undefined {
  if (fact?.memoryPeakBytes === undefined) return undefined;
  const { memoryPeakOf = contentDigest(model, profile) } = fact;
  return sameContent(memoryPeakOf, contentDigest(model, profile)) ? fact.memoryPeakBytes : undefined;
}

/** The device with everything its filters compare. */
export function gpuCandidate(candidate: NodeCandidate, gpu: GpuReport): GpuCandidate {
  const { world, model, profile, node, bookings } = candidate;
  const holders = holdersOf(bookings, gpu.uuid);
  const learned = peakOf(world.learned.of(model.name, profile.name, gpu.type), model, profile);
  const declared = profile.gpuMemoryBytes;
  const neededBytes =
    declared === undefined || learned === undefined ? (declared ?? learned) : Math.max(declared, learned);
  return { node, gpu, profile, holders, neededBytes, freeBytes: freeMemoryBytes(gpu, holders) };
}

/** Whether every test passes; stops at the first that does not. */
export function passes<Candidate>(filters: readonly Filter<Candidate>[], candidate: Candidate): boolean {
  for (const filter of filters) if (filter.blocks(candidate)) return false;
  return true;
}

/** Every reason that holds. */
export function reasonsOf<Candidate>(
  filters: readonly Filter<Candidate>[],
  candidate: Candidate,
): readonly Reason[] {
  return filters.filter((filter) => filter.blocks(candidate)).map((filter) => filter.reason(candidate));
}
