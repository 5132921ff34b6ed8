/**
 * Where one replica should stand. `place` decides, `explain` tells the same story with every reason in it; both run the same
 * filters and scores over the same candidates, so one cannot say "fits" where the other does not place.
 */
import type {
  GpuVerdict,
  NodeVerdict,
  NodeView,
  PlacementExplanation,
  ProfileExplanation,
  Reason,
  ShardAssignment,
} from '../cluster.js';
import type { ModelSpec, Profile } from '../model-spec.js';
import { nearestChange } from './counterfactual.js';
import {
  GPU_FILTERS,
  type GpuCandidate,
  gpuCandidate,
  NODE_FILTERS,
  type NodeCandidate,
  passes,
  reasonsOf,
} from './filters.js';
import { choosePorts } from './ports.js';
import { counted, placementReason } from './reasons.js';
import {
  chooseGpus,
  countDomains,
  type DomainCounts,
  isSpread,
  type Place,
  scorePlace,
  totalOf,
} from './scores.js';
import type { PlacementQuery, PlacementWorld } from './world.js';

/** A decided place: nothing is held yet. */
export interface Placement {
  readonly profile: Profile;
  readonly shards: readonly ShardAssignment[];
  readonly beat?: { readonly nodeId: string; readonly byScore: number };
}

/** A profile that failed this often for the replica on every node it fits gives way to the next one in order. */
const DEMOTE_AFTER_FAILURES = 3;

/** The best place for one replica, all of its shards or none; undefined when no profile fits. Deterministic. */
export function place(world: PlacementWorld, query: PlacementQuery): Placement | undefined {
  const domains = countDomains(world, query);
  let demoted: Placement | undefined;
  for (const profile of query.model.profiles) {
    const places = fittingPlaces(world, query, profile, domains);
    const placement = assign(world, query, profile, places);
    if (placement === undefined) continue;
    if (!isDemoted(world, query, placement)) return placement;
    demoted ??= placement;
  }
  return demoted;
}

/** The whole story of a placement: every node and GPU once per profile, with all its reasons or its scores. */
export function explain(world: PlacementWorld, query: PlacementQuery): PlacementExplanation {
  const chosen = place(world, query);
  if (chosen === undefined) return explainNowhere(world, query);
  const { profile, shards, beat } = chosen;
  return {
    model: query.model.name,
    profiles: query.model.profiles.map((one) => explainProfile(world, query, one)),
    chosen: { profile: profile.name, shards, ...(beat === undefined ? {} : { beat }) },
  };
}

/** The story of a query for which {@link place} found nothing. */
export function explainNowhere(world: PlacementWorld, query: PlacementQuery): PlacementExplanation {
  const profiles = query.model.profiles.map((profile) => explainProfile(world, query, profile));
  return {
    model: query.model.name,
    profiles,
    counterfactual: nearestChange(query.model, profiles),
    blocked: blockedReason(query.model, profiles),
  };
}

function blockedReason(model: ModelSpec, profiles: readonly ProfileExplanation[]): Reason {
  if (profiles.length === 0)
    return placementReason('no_profiles', `${model.name} declares no profile, so nothing can run it`);
  const nodes = profiles[0]?.nodes.length ?? 0;
  return {
    code: 'nothing_fits',
    message: `no place for ${model.name}: ${counted(profiles.length, 'profile')} tried on ${counted(nodes, 'node')}`,
    numbers: { profiles: profiles.length, nodes },
  };
}

// ---------------------------------------------------------------- candidates

function candidateOf(
  world: PlacementWorld,
  query: PlacementQuery,
  profile: Profile,
  node: NodeView,
): NodeCandidate {
  return { world, query, model: query.model, profile, node, bookings: world.bookings.on(node.id) };
}

/** A place ready to be compared. Without the parts of its score: thousands are kept for a pass, a few are ever told. */
export interface RankedPlace {
  readonly place: Place;
  readonly total: number;
}

const NO_PLACES: readonly RankedPlace[] = [];

function fittingPlaces(
  world: PlacementWorld,
  query: PlacementQuery,
  profile: Profile,
  domains: DomainCounts,
): readonly RankedPlace[] {
  const ranked: RankedPlace[] = [];
  const { memo } = world;
  const spread = isSpread(query.model);
  for (const node of world.nodes) {
    // With a history of its own on the node, or a copy that leaves it, a replica's answer is its own.
    const own =
      spread ||
      query.leaving?.includes(node.id) === true ||
      world.failures.of(query.replicaId, node.id).length > 0;
    const find = () => placesFor(candidateOf(world, query, profile, node), domains);
    const found = memo === undefined || own ? find() : memo.places(world, query.model, profile, node, find);
    for (const one of found) ranked.push(one);
  }
  return ranked;
}

function placesFor(candidate: NodeCandidate, domains: DomainCounts): readonly RankedPlace[] {
  if (!passes(NODE_FILTERS, candidate)) return NO_PLACES;
  return placesOn(candidate).map((found) => score(found, domains));
}

function score(found: Place, domains: DomainCounts): RankedPlace {
  return { place: found, total: totalOf(scorePlace(found, domains), found.candidate.profile.gpus) };
}

/** One place per GPU type that has enough usable devices; one place without devices for CPU work. */
function placesOn(candidate: NodeCandidate): readonly Place[] {
  const { profile, node } = candidate;
  // Too few there are whatever state they are in.
  if (node.gpus.length < profile.gpus) return NO_DEVICES;
  const usable: GpuCandidate[] = [];
  for (const gpu of profile.gpus === 0 ? [] : node.gpus) {
    const one = gpuCandidate(candidate, gpu);
    if (passes(GPU_FILTERS, one)) usable.push(one);
  }
  return placesWith(candidate, usable);
}

const NO_DEVICES: readonly Place[] = [];

/** The places made of devices that pass every filter. */
function placesWith(candidate: NodeCandidate, usable: readonly GpuCandidate[]): readonly Place[] {
  const { profile, bookings, model } = candidate;
  if (profile.gpus === 0) return [{ candidate, gpus: [], leftOver: 0 }];
  if (usable.length < profile.gpus) return NO_DEVICES;
  const found: Place[] = [];
  for (const ofType of byType(usable)) {
    if (ofType.length < profile.gpus) continue;
    const gpus = chooseGpus(ofType, profile.gpus, bookings, model);
    found.push({ candidate, gpus, leftOver: leftOver(ofType, gpus) });
  }
  return found;
}

/** By type, in the order in which the types come. Nearly every machine has one. */
function byType(usable: readonly GpuCandidate[]): readonly (readonly GpuCandidate[])[] {
  const first = usable[0]?.gpu.type;
  if (usable.every(({ gpu }) => gpu.type === first)) return [usable];
  const types = new Map<string, GpuCandidate[]>();
  for (const one of usable) {
    const list = types.get(one.gpu.type);
    if (list === undefined) types.set(one.gpu.type, [one]);
    else list.push(one);
  }
  return [...types.values()];
}

/** What stays free: devices nobody holds count 1 each, partly held ones by their free share. */
function leftOver(usable: readonly GpuCandidate[], chosen: readonly GpuCandidate[]): number {
  let left = 0;
  for (const one of usable) {
    const total = one.gpu.memoryTotalBytes ?? 0;
    const free = total === 0 ? 1 : (one.freeBytes ?? 0) / total;
    const taken = !chosen.includes(one) ? 0 : total === 0 ? 1 : (one.neededBytes ?? total) / total;
    left += Math.max(0, free - taken);
  }
  return left;
}

// ---------------------------------------------------------------- choice

/** The better one first; equal totals by node id and GPU type, so that the same input always gives the same answer. */
function compareRanked(a: RankedPlace, b: RankedPlace): number {
  return b.total - a.total || compareTies(a.place, b.place);
}

function compareTies(a: Place, b: Place): number {
  return (
    compareText(a.candidate.node.id, b.candidate.node.id) ||
    compareText(a.gpus[0]?.gpu.type ?? '', b.gpus[0]?.gpu.type ?? '')
  );
}

function compareText(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

/** Takes the best set of distinct nodes of one GPU type, and ports on them. */
function assign(
  world: PlacementWorld,
  query: PlacementQuery,
  profile: Profile,
  places: readonly RankedPlace[],
): Placement | undefined {
  for (const group of gangs(places, profile.shards)) {
    const sites = group.map(({ place: { candidate } }) => candidate);
    const ports = choosePorts(sites, world.portRange, query.replicaId, query.generation);
    if (ports === undefined) continue;
    const shards = group.map(({ place: { candidate, gpus } }, rankNumber): ShardAssignment => {
      const memory = profile.gpuMemoryBytes === undefined ? undefined : gpus[0]?.neededBytes;
      return {
        shardId: `${query.replicaId}.${rankNumber}`,
        rank: rankNumber,
        nodeId: candidate.node.id,
        gpuUuids: gpus.map(({ gpu }) => gpu.uuid),
        ...(memory === undefined ? {} : { gpuMemoryBytes: memory }),
        ports: ports[rankNumber] ?? { http: 0 },
      };
    });
    const beat = runnerUp(places, group);
    return { profile, shards, ...(beat === undefined ? {} : { beat }) };
  }
  return undefined;
}

/**
 * Possible gangs, best first: for each GPU type its best `size` nodes. A single shard is a gang of one. Takes the best of each
 * type without sorting the rest: of a thousand places all but a few are never looked at again.
 */
function gangs(places: readonly RankedPlace[], size: number): readonly (readonly RankedPlace[])[] {
  const byType = new Map<string, RankedPlace[]>();
  for (const one of places) {
    // A node has one place per type, so a type's places are on different nodes.
    const type = one.place.gpus[0]?.gpu.type ?? '';
    const group = byType.get(type);
    if (group === undefined) byType.set(type, [one]);
    else keepBest(group, one, size);
  }
  const whole = [...byType.values()].filter((group) => group.length === size);
  return whole.toSorted((a, b) => gangTotal(b) - gangTotal(a) || compareFirst(a, b));
}

/** Takes `one` into the sorted `group` if it is among the best `size`. */
function keepBest(group: RankedPlace[], one: RankedPlace, size: number): void {
  const last = group.at(-1);
  if (group.length >= size && last !== undefined && compareRanked(last, one) < 0) return;
  const at = group.findIndex((other) => compareRanked(one, other) < 0);
  group.splice(at === -1 ? group.length : at, 0, one);
  if (group.length > size) group.pop();
}

function compareFirst([a]: readonly RankedPlace[], [b]: readonly RankedPlace[]): number {
  return a === undefined || b === undefined ? 0 : compareRanked(a, b);
}

function gangTotal(group: readonly RankedPlace[]): number {
  return group.reduce((sum, one) => sum + one.total, 0);
}

function runnerUp(
  places: readonly RankedPlace[],
  group: readonly RankedPlace[],
): { readonly nodeId: string; readonly byScore: number } | undefined {
  const last = group.at(-1);
  if (last === undefined) return undefined;
  const nodes = new Set(group.map((one) => one.place.candidate.node));
  let next: RankedPlace | undefined;
  for (const one of places) {
    const better = next === undefined || compareRanked(one, next) < 0;
    if (better && !nodes.has(one.place.candidate.node)) next = one;
  }
  if (next === undefined) return undefined;
  return { nodeId: next.place.candidate.node.id, byScore: last.total - next.total };
}

function isDemoted(world: PlacementWorld, query: PlacementQuery, placement: Placement): boolean {
  return placement.shards.some(({ nodeId }) =>
    world.failures
      .of(query.replicaId, nodeId)
      .some(
        (record) =>
          record.profile === placement.profile.name &&
          !record.permanent &&
          record.failures >= DEMOTE_AFTER_FAILURES,
      ),
  );
}

// ---------------------------------------------------------------- explanation

/** `shown` are the nodes that are told of; what is said of each is always judged against all. */
function explainProfile(
  world: PlacementWorld,
  query: PlacementQuery,
  profile: Profile,
  shown: readonly NodeView[] = world.nodes,
): ProfileExplanation {
  const domains = countDomains(world, query);
  const told = shown.map((node) => explainNode(candidateOf(world, query, profile, node), domains));
  const nodes = [...told.map(({ verdict }) => verdict), ...unknownPins(world, query.model)];
  const fitting = nodes.filter((node) => node.fits).length;
  const places = told.flatMap((one) => one.places);
  const placement = assign(world, query, profile, places);
  const reasons: Reason[] = [];
  if (nodes.length === 0) reasons.push(placementReason('no_nodes', 'no node is known'));
  if (placement === undefined && profile.shards > 1 && nodes.length > 0)
    reasons.push(
      placementReason(
        'gang_too_few_nodes',
        `needs ${counted(profile.shards, 'node')} with ${counted(profile.gpus, 'GPU')} of one type and common ports each at the same time; ${fitting} fit`,
        { needed: profile.shards, fitting },
      ),
    );
  return { profile: profile.name, fits: placement !== undefined, nodes, reasons };
}

/** What is told of a node, and the places it was told from; none on a node that does not fit. */
function explainNode(
  candidate: NodeCandidate,
  domains: DomainCounts,
): { readonly verdict: NodeVerdict; readonly places: readonly RankedPlace[] } {
  const { node, profile } = candidate;
  const reasons = [...reasonsOf(NODE_FILTERS, candidate)];
  const devices = node.gpus.map((gpu) => gpuCandidate(candidate, gpu));
  const gpus = devices.map(explainGpu);
  // A device without a reason against it is one that passes: the same filters.
  const usable = devices.filter((_device, index) => gpus[index]?.fits === true);
  const places = placesWith(candidate, usable).map((found) => score(found, domains));
  if (places.length === 0) reasons.push(tooFewGpus(profile, gpus));
  const best = places.toSorted(compareRanked)[0];
  if (reasons.length > 0 || best === undefined)
    return { verdict: { nodeId: node.id, fits: false, reasons, gpus }, places: NO_PLACES };
  const { place: found, total } = best;
  const scores = scorePlace(found, domains);
  return { verdict: { nodeId: node.id, fits: true, reasons, scores, total, gpus }, places };
}

function tooFewGpus(profile: Profile, gpus: readonly GpuVerdict[]): Reason {
  const usable = new Map<string, number>();
  for (const gpu of gpus) if (gpu.fits) usable.set(gpu.type, (usable.get(gpu.type) ?? 0) + 1);
  const free = Math.max(0, ...usable.values());
  const types = [...usable].map(([type, count]) => `${count} ${type}`).join(', ');
  const message =
    gpus.length === 0
      ? `needs ${counted(profile.gpus, 'GPU')}, has none`
      : `needs ${counted(profile.gpus, 'GPU')}${profile.gpus > 1 ? ' of one type' : ''}, ${types || 'none'} usable of ${gpus.length}`;
  return placementReason('gpus_too_few', message, { needed: profile.gpus, free, present: gpus.length });
}

function explainGpu(candidate: GpuCandidate): GpuVerdict {
  const { gpu, holders, neededBytes, freeBytes } = candidate;
  const reasons = reasonsOf(GPU_FILTERS, candidate);
  return {
    uuid: gpu.uuid,
    type: gpu.type,
    fits: reasons.length === 0,
    reasons,
    ...(freeBytes === undefined ? {} : { memoryFreeBytes: freeBytes }),
    ...(neededBytes === undefined ? {} : { memoryNeededBytes: neededBytes }),
    heldBy: holders.map(({ shardId }) => shardId),
  };
}

/** A model pinned to a node nobody has heard of: that node is listed too, or the explanation would not name the cause. */
function unknownPins(world: PlacementWorld, model: ModelSpec): readonly NodeVerdict[] {
  const pinned = model.placement.nodeSelector['node'];
  if (
    pinned === undefined ||
    world.nodes.some(({ id, labels }) => id === pinned || labels['node'] === pinned)
  )
    return [];
  const reason = placementReason('node_unknown', `pinned to ${pinned}, which no agent has registered`);
  return [{ nodeId: pinned, fits: false, reasons: [reason], gpus: [] }];
}

/** Nodes kept in a stored explanation; the whole one is made again on demand. */
const STORED_NODES_MAX = 8;

/**
 * The explanation kept with a decision: whole in a small cluster; in a large one the chosen nodes, the one they beat, and some of
 * the rest, for telling 1,000 nodes' reasons with every placement would cost more than deciding it.
 */
export function explainDecision(
  world: PlacementWorld,
  query: PlacementQuery,
  placement: Placement,
): PlacementExplanation {
  const named = new Set(placement.shards.map(({ nodeId }) => nodeId));
  if (placement.beat !== undefined) named.add(placement.beat.nodeId);
  for (const { id } of world.nodes) {
    if (named.size >= STORED_NODES_MAX) break;
    named.add(id);
  }
  const shown = world.nodes.filter(({ id }) => named.has(id));
  const { profile, shards, beat } = placement;
  const chosen = { profile: profile.name, shards, ...(beat === undefined ? {} : { beat }) };
  const profiles = query.model.profiles.map((one) => explainProfile(world, query, one, shown));
  const omitted = world.nodes.length - shown.length;
  return { model: query.model.name, profiles, chosen, ...(omitted === 0 ? {} : { omittedNodes: omitted }) };
}
