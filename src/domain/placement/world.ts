/** What placement looks at: the nodes as judged in this pass, what is held, what failed where, and what was learned. */
import { specDigest } from '../catalog/spec-digest.js';
import type { BackoffRecord, LearnedFact, NodeView } from '../cluster.js';
import type { ModelSpec, Profile } from '../model-spec.js';
import type { Bookings } from './bookings.js';
import type { RankedPlace } from './place.js';

export interface PlacementWorld {
  readonly nodes: readonly NodeView[];
  /** Written to by whoever carries out a decision; placement itself only reads it. */
  readonly bookings: Bookings;
  readonly failures: Failures;
  readonly learned: Learned;
  /** First and last port for shards, both included. */
  readonly portRange: readonly [number, number];
  /** Wall time, ms, for back-offs that must outlive a restart. */
  readonly nowWallMs: number;
  /** What earlier questions of the same pass found; absent where only one is asked. */
  readonly memo?: PlacementMemo<RankedPlace>;
}

interface Remembered<Found> {
  readonly node: NodeView;
  readonly model: ModelSpec;
  readonly bookings: number;
  readonly learned: number;
  readonly failures: number;
  readonly found: readonly Found[];
}

/**
 * Places found per profile and node. Sixteen replicas placed in one pass ask every node of the fleet the same question, and only
 * on the nodes that the ones before them took has the answer changed. Only for questions that depend on nothing but model,
 * profile and node. Lives as long as its pass.
 */
export class PlacementMemo<Found> {
  readonly #profiles = new Map<Profile, Map<string, Remembered<Found>>>();

  /** What is remembered, or what `find` finds now. */
  places(
    world: PlacementWorld,
    model: ModelSpec,
    profile: Profile,
    node: NodeView,
    find: () => readonly Found[],
  ): readonly Found[] {
    let nodes = this.#profiles.get(profile);
    if (nodes === undefined) this.#profiles.set(profile, (nodes = new Map()));
    const known = nodes.get(node.id);
    const bookings = world.bookings.on(node.id).revision;
    const learned = world.learned.revision;
    const failures = world.failures.revision;
    const holds =
      known?.node === node &&
      known.model === model &&
      known.bookings === bookings &&
      known.learned === learned &&
      known.failures === failures;
    if (holds) return known.found;
    const found = find();
    nodes.set(node.id, { node, model, bookings, learned, failures, found });
    return found;
  }
}

/** What is to be placed. */
export interface PlacementQuery {
  readonly model: ModelSpec;
  /** The replica, when it exists already: its failures count against the nodes they happened on. */
  readonly replicaId: string;
  /** Generation the start will have. */
  readonly generation: number;
  /** Nodes of the copy this one is to replace: it goes, so it does not count against a place when copies are spread. */
  readonly leaving?: readonly string[];
}

/** Failures by where they matter. */
export class Failures {
  readonly #byReplicaNode = new Map<string, BackoffRecord[]>();
  readonly #parked = new Map<string, BackoffRecord>();
  /** Grows with every failure that comes in. */
  revision = 0;

  constructor(records: Iterable<BackoffRecord>) {
    for (const record of records) this.add(record);
  }

  add(record: BackoffRecord): void {
    this.revision += 1;
    if (record.permanent) this.#parked.set(parkKey(record.model, record.profile, record.nodeId), record);
    const key = `${record.replicaId}/${record.nodeId}`;
    const list = this.#byReplicaNode.get(key);
    if (list === undefined) this.#byReplicaNode.set(key, [record]);
    else list.push(record);
  }

  /** Failures of one replica on one node, permanent ones included. */
  of(replicaId: string, nodeId: string): readonly BackoffRecord[] {
    if (this.#byReplicaNode.size === 0) return NONE;
    return this.#byReplicaNode.get(`${replicaId}/${nodeId}`) ?? NONE;
  }

  /** The permanent failure that keeps a profile off a node, unless the profile has changed since. */
  parked(model: ModelSpec, profile: Profile, nodeId: string): BackoffRecord | undefined {
    if (this.#parked.size === 0) return undefined;
    const record = this.#parked.get(parkKey(model.name, profile.name, nodeId));
    // The digest is only computed when there is something to compare it with: parks are rare, candidates are many.
    return record !== undefined && record.specDigest === specDigest(model, profile) ? record : undefined;
  }
}

const NONE: readonly BackoffRecord[] = [];

function parkKey(model: string, profile: string, nodeId: string): string {
  return JSON.stringify([model, profile, nodeId]);
}

/** Facts measured from real starts, by (model, profile, GPU type). */
export class Learned {
  /** By model and profile, then by GPU type: asked for every device, so without a key that must be built first. */
  readonly #facts = new Map<string, Map<string, Map<string, LearnedFact>>>();
  /** Grows with every fact that comes in. */
  revision = 0;

  constructor(facts: Iterable<LearnedFact>) {
    for (const fact of facts) this.put(fact);
  }

  put(fact: LearnedFact): void {
    this.revision += 1;
    const profiles = this.#facts.get(fact.model) ?? new Map<string, Map<string, LearnedFact>>();
    const types = profiles.get(fact.profile) ?? new Map<string, LearnedFact>();
    this.#facts.set(fact.model, profiles.set(fact.profile, types.set(fact.gpuType, fact)));
  }

  of(model: string, profile: string, gpuType: string): LearnedFact | undefined {
    return this.#facts.get(model)?.get(profile)?.get(gpuType);
  }
}

/** Store key of a learned fact. */
export function learnedKey(model: string, profile: string, gpuType: string): string {
  return JSON.stringify([model, profile, gpuType]);
}

/** Labels a selector may name besides the agent's own: the node's id and its host name. */
export function labelOf(node: NodeView, key: string): string | undefined {
  return node.labels[key] ?? (key === 'node' ? node.id : key === 'hostname' ? node.hostname : undefined);
}

/** Glob match as used for GPU types: `*` any run, `?` one character, case ignored. A pattern with `/` is `vendor/type`. */
export function matchesGlob(pattern: string, text: string): boolean {
  return globRegExp(pattern).test(text);
}

const globs = new Map<string, RegExp>();
/** Patterns come from the catalog, so they are few; the limit only guards against a leak through endless reloads. */
const GLOBS_MAX = 1_000;

function globRegExp(pattern: string): RegExp {
  const known = globs.get(pattern);
  if (known !== undefined) return known;
  if (globs.size >= GLOBS_MAX) globs.clear();
  const source = pattern
    .replace(/[.+^${}()|[\]\\]/g, '\\$&')
    .replace(/\*+/g, '.*')
    .replace(/\?/g, '.');
  const compiled = new RegExp(`^${source}$`, 'i');
  globs.set(pattern, compiled);
  return compiled;
}
