/**
 * Which replicas of lower priority have to go for one that fits nowhere: only models that allow it, only strictly lower ones, the
 * fewest and lowest, and never one more than needed. What it says is a question answered, not a decision: nothing is held here.
 */
import type { GpuReport, NodeView, ShardAssignment } from '../cluster.js';
import type { ModelSpec, Profile } from '../model-spec.js';
import { holdersOf } from './bookings.js';
import { GPU_FILTERS, gpuCandidate, passes } from './filters.js';
import { type Placement, place } from './place.js';
import type { PlacementQuery, PlacementWorld } from './world.js';

/** A whole replica that could make room. */
export interface YieldCandidate {
  readonly replicaId: string;
  readonly model: ModelSpec;
  readonly shards: readonly ShardAssignment[];
  /** Whether clients lose a serving copy when it stops. */
  readonly serving: boolean;
  /** Whether its model has another place: it is then moved, and nobody loses anything. */
  readonly movable: boolean;
  readonly inflight: number;
  readonly createdWallMs: number;
}

export interface YieldChoice {
  /** Where the replica would stand; its ports are chosen anew when it is placed. */
  readonly placement: Placement;
  readonly victims: readonly YieldCandidate[];
}

/** Why a model's replicas do not make room for another model's; undefined when they do. */
export function yieldRefusal(to: ModelSpec, victim: ModelSpec): string | undefined {
  if (victim.priority >= to.priority)
    return `priority ${victim.priority} of ${victim.name} is not below ${to.priority}`;
  if (victim.placement.mayYield !== true) return `placement.mayYield of ${victim.name} is off`;
  return undefined;
}

/**
 * The cheapest set of replicas after whose leaving the query fits; undefined when none helps. For a query that fits already the
 * answer is meaningless. Deterministic, whatever the order of candidates and nodes.
 *
 * @param mayGo which candidates count; by default those that the rule allows
 */
export function chooseYield(
  world: PlacementWorld,
  query: PlacementQuery,
  candidates: readonly YieldCandidate[],
  mayGo = (one: YieldCandidate): boolean => yieldRefusal(query.model, one.model) === undefined,
): YieldChoice | undefined {
  const allowed = candidates.filter((one) => one.model.name !== query.model.name && mayGo(one));
  if (allowed.length === 0) return undefined;
  let best: YieldChoice | undefined;
  for (const profile of query.model.profiles) {
    // What runs on the CPU is never short of devices.
    if (profile.gpus === 0) continue;
    const choice = new Search(world, query, profile, allowed).run();
    if (choice === undefined) continue;
    if (best === undefined || compareSets(choice.victims, best.victims) < 0) best = choice;
  }
  return best;
}

/** The world as it would be without some replicas; for questions only, it books nothing. */
export function worldWithout(
  world: PlacementWorld,
  gone: readonly { readonly model: { readonly name: string }; readonly shards: readonly ShardAssignment[] }[],
): PlacementWorld {
  const freed = new Map<string, ShardAssignment[]>();
  for (const { shards } of gone)
    for (const shard of shards) freed.set(shard.nodeId, [...(freed.get(shard.nodeId) ?? []), shard]);
  const present = new Set(world.nodes.map(({ id }) => id));
  const bookings = world.bookings.excerpt(present, new Set(freed.keys()));
  for (const { model, shards } of gone)
    for (const shard of shards) if (present.has(shard.nodeId)) bookings.release(model.name, shard);
  const { memo: _memo, ...rest } = world;
  const nodes = world.nodes.map((node) => {
    const shards = freed.get(node.id);
    if (shards === undefined) return node;
    const held = bookings.on(node.id);
    return { ...node, gpus: node.gpus.map((gpu) => emptied(gpu, shards, holdersOf(held, gpu.uuid).length)) };
  });
  return { ...rest, bookings, nodes };
}

/** What is measured on a device includes what would be gone; a stranger of unknown size may be all of it, then nothing is presumed. */
function emptied(gpu: GpuReport, gone: readonly ShardAssignment[], holdersLeft: number): GpuReport {
  const here = gone.filter(({ gpuUuids }) => gpuUuids.includes(gpu.uuid));
  if (here.length === 0 || gpu.memoryUsedBytes === undefined) return gpu;
  let foreign = 0;
  for (const { memoryBytes } of gpu.foreign) {
    if (memoryBytes === undefined) return gpu;
    foreign += memoryBytes;
  }
  const booked = here.reduce((sum, shard) => sum + (shard.gpuMemoryBytes ?? gpu.memoryUsedBytes ?? 0), 0);
  const used = holdersLeft === 0 ? foreign : Math.max(foreign, gpu.memoryUsedBytes - booked);
  return { ...gpu, memoryUsedBytes: Math.min(gpu.memoryUsedBytes, used) };
}

// ---------------------------------------------------------------- order

/** Fewest first, then those that lose the fewest serving copies, then the lowest priorities, the least room, the fewest requests. */
export function compareSets(a: readonly YieldCandidate[], b: readonly YieldCandidate[]): number {
  return (
    a.length - b.length ||
    losses(a) - losses(b) ||
    compareLists(priorities(a), priorities(b)) ||
    sum(a, roomOf) - sum(b, roomOf) ||
    sum(a, ({ inflight }) => inflight) - sum(b, ({ inflight }) => inflight) ||
    // The newest goes, as in every other choice of a replica to be sent away.
    compareLists(ages(b), ages(a)) ||
    compareText(names(a), names(b))
  );
}

/** Serving copies that would not stand elsewhere instead. One free place of a model is not counted for two. */
function losses(set: readonly YieldCandidate[]): number {
  const moved = new Set<string>();
  let lost = 0;
  for (const { serving, movable, model } of set) {
    if (!serving) continue;
    if (movable && !moved.has(model.name)) moved.add(model.name);
    else lost += 1;
  }
  return lost;
}

/** Highest first: one victim of high priority weighs more than the rest together. */
const priorities = (set: readonly YieldCandidate[]): readonly number[] =>
  set.map(({ model }) => model.priority).toSorted((a, b) => b - a);
const ages = (set: readonly YieldCandidate[]): readonly number[] =>
  set.map(({ createdWallMs }) => createdWallMs).toSorted((a, b) => a - b);
const roomOf = ({ shards }: YieldCandidate): number =>
  shards.reduce((count, { gpuUuids }) => count + gpuUuids.length, 0);
const names = (set: readonly YieldCandidate[]): string =>
  set
    .map(({ replicaId }) => replicaId)
    .toSorted()
    .join(' ');

function sum(set: readonly YieldCandidate[], of: (one: YieldCandidate) => number): number {
  return set.reduce((total, one) => total + of(one), 0);
}

function compareLists(a: readonly number[], b: readonly number[]): number {
  for (const [index, value] of a.entries()) {
    const difference = value - (b[index] ?? 0);
    if (difference !== 0) return difference;
  }
  return 0;
}

function compareText(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

// ---------------------------------------------------------------- search

/** Sets looked at on one node and for one profile; beyond that the first set that is not too large is taken. */
const SETS_MAX = 300;

interface Site {
  readonly node: NodeView;
  readonly victims: readonly YieldCandidate[];
}

class Search {
  readonly #byNode = new Map<string, YieldCandidate[]>();
  /** One rank of the profile. */
  readonly #rank: Profile;

  constructor(
    private readonly world: PlacementWorld,
    private readonly query: PlacementQuery,
    private readonly profile: Profile,
    private readonly candidates: readonly YieldCandidate[],
  ) {
    this.#rank = profile.shards === 1 ? profile : { ...profile, shards: 1 };
    for (const candidate of candidates)
      for (const nodeId of new Set(candidate.shards.map((shard) => shard.nodeId)))
        this.#byNode.set(nodeId, [...(this.#byNode.get(nodeId) ?? []), candidate]);
  }

  run(): YieldChoice | undefined {
    if (this.profile.shards === 1) {
      const site = this.#bestSite(this.world.nodes, []);
      return site === undefined ? undefined : this.#chosen([site.node], site.victims);
    }
    // A gang stands on devices of one type.
    const types = new Set(this.world.nodes.flatMap(({ gpus }) => gpus.map(({ type }) => type)));
    let best: YieldChoice | undefined;
    for (const type of [...types].toSorted()) {
      const choice = this.#gang(type);
      if (choice !== undefined && (best === undefined || compareSets(choice.victims, best.victims) < 0))
        best = choice;
    }
    return best;
  }

  #gang(type: string): YieldChoice | undefined {
    const nodes = this.world.nodes.map((node) => ({
      ...node,
      gpus: node.gpus.filter((gpu) => gpu.type === type),
    }));
    const chosen: NodeView[] = [];
    let victims: readonly YieldCandidate[] = [];
    while (chosen.length < this.profile.shards) {
      const site = this.#bestSite(
        nodes.filter((node) => !chosen.includes(node)),
        victims,
      );
      if (site === undefined) return undefined;
      chosen.push(site.node);
      victims = [...victims, ...site.victims];
    }
    // One that was taken late may make another, taken before it, needless: also on nodes not chosen then.
    return this.#chosen(nodes, this.#pruned(nodes, victims));
  }

  /** The node that needs the fewest and lowest more to go. */
  #bestSite(nodes: readonly NodeView[], gone: readonly YieldCandidate[]): Site | undefined {
    let best: Site | undefined;
    for (const node of nodes.toSorted((a, b) => compareText(a.id, b.id))) {
      const victims = this.#victimsOn(node, gone, best?.victims.length ?? Infinity);
      if (victims === undefined) continue;
      if (best === undefined || compareSets(victims, best.victims) < 0) best = { node, victims };
      if (victims.length === 0) break;
    }
    return best;
  }

  #victimsOn(
    node: NodeView,
    gone: readonly YieldCandidate[],
    most: number,
  ): readonly YieldCandidate[] | undefined {
    const present = (this.#byNode.get(node.id) ?? []).filter((one) => !gone.includes(one));
    if (present.length === 0 && this.profile.shards === 1) return undefined;
    if (this.#fits([node], gone, this.#rank)) return [];
    if (present.length === 0 || !this.#fits([node], [...gone, ...present], this.#rank)) return undefined;
    const missing = this.profile.gpus - this.#usable(node, gone);
    let looked = 0;
    for (let size = 1; size <= Math.min(present.length, most); size += 1) {
      const sets = subsets(present, size, SETS_MAX - looked);
      if (sets === undefined) return this.#prunedOn(node, gone, present);
      looked += sets.length;
      const found = sets
        .filter((set) => touched(node, set) >= missing)
        .toSorted(compareSets)
        .find((set) => this.#fits([node], [...gone, ...set], this.#rank));
      if (found !== undefined) return found;
    }
    return undefined;
  }

  /** Devices that need nobody to go. */
  #usable(node: NodeView, gone: readonly YieldCandidate[]): number {
    const world = worldWithout({ ...this.world, nodes: [node] }, gone);
    const [seen] = world.nodes;
    if (seen === undefined) return 0;
    const { model } = this.query;
    const bookings = world.bookings.on(node.id);
    const site = { world, query: this.query, model, profile: this.#rank, node: seen, bookings };
    return seen.gpus.filter((gpu) => passes(GPU_FILTERS, gpuCandidate(site, gpu))).length;
  }

  #fits(nodes: readonly NodeView[], gone: readonly YieldCandidate[], profile: Profile): boolean {
    return this.#place(nodes, gone, profile) !== undefined;
  }

  #place(
    nodes: readonly NodeView[],
    gone: readonly YieldCandidate[],
    profile: Profile,
  ): Placement | undefined {
    const model = { ...this.query.model, profiles: [profile] };
    return place(worldWithout({ ...this.world, nodes }, gone), { ...this.query, model });
  }

  #chosen(nodes: readonly NodeView[], victims: readonly YieldCandidate[]): YieldChoice | undefined {
    const placement = this.#place(nodes, victims, this.profile);
    if (placement === undefined) return undefined;
    return { placement, victims: victims.toSorted((a, b) => compareText(a.replicaId, b.replicaId)) };
  }

  /** Without those that turn out not to be needed, the dearest kept back first. */
  #pruned(nodes: readonly NodeView[], victims: readonly YieldCandidate[]): readonly YieldCandidate[] {
    return withoutNeedless(victims, (left) => this.#fits(nodes, left, this.profile));
  }

  #prunedOn(
    node: NodeView,
    gone: readonly YieldCandidate[],
    present: readonly YieldCandidate[],
  ): readonly YieldCandidate[] {
    return withoutNeedless(present, (left) => this.#fits([node], [...gone, ...left], this.#rank));
  }
}

function withoutNeedless(
  victims: readonly YieldCandidate[],
  enough: (left: readonly YieldCandidate[]) => boolean,
): readonly YieldCandidate[] {
  let kept = victims;
  for (const one of victims.toSorted((a, b) => compareSets([b], [a]))) {
    const left = kept.filter((other) => other !== one);
    if (enough(left)) kept = left;
  }
  return kept;
}

function touched(node: NodeView, set: readonly YieldCandidate[]): number {
  const uuids = set.flatMap(({ shards }) =>
    shards.flatMap(({ nodeId, gpuUuids }) => (nodeId === node.id ? gpuUuids : [])),
  );
  return new Set(uuids).size;
}

/** All sets of a size; undefined when there are more than `most`. */
function subsets<T>(items: readonly T[], size: number, most: number): readonly (readonly T[])[] | undefined {
  const found: T[][] = [];
  const grow = (from: number, set: readonly T[]): boolean => {
    if (set.length === size) {
      found.push([...set]);
      return found.length <= most;
    }
    for (let index = from; index <= items.length - (size - set.length); index += 1) {
      const item = items[index];
      if (item !== undefined && !grow(index + 1, [...set, item])) return false;
    }
    return true;
  };
  return grow(0, []) ? found : undefined;
}
