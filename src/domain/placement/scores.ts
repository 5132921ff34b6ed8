/** Which of the places that fit is best. Every score is 0..1, higher is better; the weights say what outweighs what. */
import type { GpuReport, NodeView } from '../cluster.js';
import type { ModelSpec } from '../model-spec.js';
import { holdersOf, type NodeBookings } from './bookings.js';
import type { GpuCandidate, NodeCandidate } from './filters.js';
import { labelOf, type PlacementQuery, type PlacementWorld } from './world.js';

/** Score parts of a place, by scorer. */
export type Scores = Readonly<Record<ScoreName, number>>;
export type ScoreName = 'fresh' | 'spread' | 'apart' | 'pack' | 'links' | 'weights' | 'balance';

/**
 * A node the replica has not failed on outweighs everything: the same place twice teaches nothing. Spreading, where it is wanted,
 * outweighs packing. Two copies of one model on one device share its compute and die with it, so they serve no more than one:
 * that is worth less than any hole, and taken only when nothing else fits. Packing outweighs weights on disk only where it saves a large hole: the last free GPU (0.5) against two (0.33)
 * is 1.7, against a load time saved 1.
 */
const WEIGHTS: Readonly<Record<ScoreName, number>> = {
  fresh: 1_000,
  spread: 100,
  apart: 50,
  pack: 10,
  links: 3,
  weights: 1,
  balance: 1,
};

/** A node that fits, with the devices that would be taken on it. */
export interface Place {
  readonly candidate: NodeCandidate;
  readonly gpus: readonly GpuCandidate[];
  /** Usable whole devices left on the node afterwards, plus the unused part of the chosen ones. */
  readonly leftOver: number;
}

/** Replicas of the model per failure domain, counted once for all candidates. */
export type DomainCounts = ReadonlyMap<string, number>;

/**
 * Counts live shards of the query's model per value of its `spreadBy` label, over all nodes; a copy that is about to go is not
 * counted. Empty for a model that is not spread: nothing asks for the counts then.
 */
export function countDomains({ nodes, bookings }: PlacementWorld, query: PlacementQuery): DomainCounts {
  const counts = new Map<string, number>();
  const { name, placement } = query.model;
  if (!isSpread(query.model)) return counts;
  for (const node of nodes) {
    const count = bookings.on(node.id).models.get(name);
    if (count === undefined) continue;
    const domain = domainOf(node, placement.spreadBy);
    const staying = count - (query.leaving?.includes(node.id) === true ? 1 : 0);
    counts.set(domain, (counts.get(domain) ?? 0) + staying);
  }
  return counts;
}

/** Whether copies of the model are to stand apart, so that where one goes depends on where all others are. */
export function isSpread({ placement }: ModelSpec): boolean {
  return placement.strategy === 'spread' || placement.spreadBy !== undefined;
}

/** The failure domain a node is in; a node without the label is a domain of its own. */
export function domainOf(node: NodeView, spreadBy: string | undefined): string {
  return (spreadBy === undefined ? undefined : labelOf(node, spreadBy)) ?? `node/${node.id}`;
}

/** Scores a place. */
export function scorePlace(place: Place, domains: DomainCounts): Scores {
  const { candidate, gpus } = place;
  const { model, node, bookings } = candidate;
  const { strategy, spreadBy } = model.placement;
  const { leaving = [] } = candidate.query;
  const onNode = (bookings.models.get(model.name) ?? 0) - (leaving.includes(node.id) ? 1 : 0);
  const inDomain = domains.get(domainOf(node, spreadBy)) ?? 0;
  const spreads = isSpread(model);
  return {
    fresh: freshness(candidate),
    // Half for the domain, half for the node within it; under `pack` only the domain matters.
    spread: !spreads ? 0 : (1 / (1 + inDomain) + (strategy === 'spread' ? 1 / (1 + onNode) : 0)) / 2,
    apart: 1 - stackedShare(gpus, model.name),
    pack: strategy === 'pack' ? 1 / (1 + place.leftOver) : 0,
    links: linkShare(gpus.map(({ gpu }) => gpu)),
    weights: model.source !== undefined && node.weightsPresent.includes(weightsName(model.source)) ? 1 : 0,
    balance: candidate.profile.gpus === 0 ? 1 / (1 + bookings.cpuShards) : 0,
  };
}

/** A source as nodes list it: a path as it is, a repository id without its quantisation and revision. */
function weightsName(source: string): string {
  return source.startsWith('/') ? source : (/^[^@:]+/.exec(source)?.[0] ?? source);
}

/** Weighted sum. CPU work has no size that could be packed, so for it balance takes packing's place. */
export function totalOf(scores: Scores, gpus: number): number {
  let total = 0;
  for (const name in WEIGHTS) total += WEIGHTS[name as ScoreName] * scores[name as ScoreName];
  return gpus === 0 ? total + (WEIGHTS.pack - 1) * scores.balance : total;
}

/** 1 for a node without a failure of this replica; less with each, and least for the one that failed last. */
function freshness({ world, query, node }: NodeCandidate): number {
  let failures = 0;
  let last = false;
  for (const record of world.failures.of(query.replicaId, node.id)) {
    // A lost race for a port says nothing about the node.
    if (record.delayMs === 0) continue;
    failures += record.failures;
    last ||= record.generation === query.generation - 1;
  }
  return (last ? 0.9 : 1) / (1 + failures);
}

/** Share of the chosen devices that already carry a copy of the model. */
function stackedShare(gpus: readonly GpuCandidate[], model: string): number {
  if (gpus.length === 0) return 0;
  return gpus.filter((one) => carries(one, model)).length / gpus.length;
}

function carries({ holders }: GpuCandidate, model: string): boolean {
  return holders.some((holder) => holder.model === model);
}

/** Share of the chosen devices' pairs that are linked; 0 for a single device. */
function linkShare(gpus: readonly GpuReport[]): number {
  const pairs = (gpus.length * (gpus.length - 1)) / 2;
  return pairs === 0 ? 0 : countLinks(gpus) / pairs;
}

function countLinks(gpus: readonly GpuReport[]): number {
  let links = 0;
  for (const [index, gpu] of gpus.entries()) {
    for (const other of gpus.slice(index + 1)) if (gpu.linkedTo.includes(other.uuid)) links += 1;
  }
  return links;
}

/**
 * Picks `count` of the usable devices of one type: linked sets first, then those without a copy of the model; of these under `pack`
 * the fullest, so that the largest holes and the still whole linked pairs stay, under `spread` the emptiest. `usable` must hold
 * at least `count`.
 */
export function chooseGpus(
  usable: readonly GpuCandidate[],
  count: number,
  bookings: NodeBookings,
  model: Pick<ModelSpec, 'name' | 'placement'>,
): readonly GpuCandidate[] {
  const compare = (a: GpuCandidate, b: GpuCandidate) => compareGpus(a, b, bookings, model);
  if (count === 1) return usable.length === 0 ? [] : [usable.reduce((a, b) => (compare(b, a) < 0 ? b : a))];
  const order = usable.toSorted(compare);
  if (!usable.some(({ gpu }) => gpu.linkedTo.length > 0)) return order.slice(0, count);
  let best: readonly GpuCandidate[] = [];
  let bestLinks = -1;
  for (const first of order) {
    const set = growLinkedSet(first, order, count);
    const links = countLinks(set.map(({ gpu }) => gpu));
    if (links > bestLinks) [best, bestLinks] = [set, links];
  }
  return best;
}

function growLinkedSet(
  first: GpuCandidate,
  order: readonly GpuCandidate[],
  count: number,
): readonly GpuCandidate[] {
  const chosen = [first];
  const left = order.filter((one) => one !== first);
  while (chosen.length < count) {
    let bestIndex = 0;
    let bestLinks = -1;
    for (const [index, one] of left.entries()) {
      const links = chosen.filter(({ gpu }) => gpu.linkedTo.includes(one.gpu.uuid)).length;
      if (links > bestLinks) [bestIndex, bestLinks] = [index, links];
    }
    chosen.push(...left.splice(bestIndex, 1));
  }
  return chosen;
}

function compareGpus(
  a: GpuCandidate,
  b: GpuCandidate,
  bookings: NodeBookings,
  { name, placement }: Pick<ModelSpec, 'name' | 'placement'>,
): number {
  const stacked = Number(carries(a, name)) - Number(carries(b, name));
  if (stacked !== 0) return stacked;
  const free = (a.freeBytes ?? 0) - (b.freeBytes ?? 0);
  if (free !== 0) return placement.strategy === 'spread' ? -free : free;
  const links = freeLinks(a.gpu, bookings) - freeLinks(b.gpu, bookings);
  if (links !== 0) return links;
  return a.gpu.uuid < b.gpu.uuid ? -1 : 1;
}

/** Linked partners nobody holds: taking a device out of a whole pair spoils the pair. */
function freeLinks(gpu: GpuReport, bookings: NodeBookings): number {
  let free = 0;
  for (const uuid of gpu.linkedTo) if (holdersOf(bookings, uuid).length === 0) free += 1;
  return free;
}
