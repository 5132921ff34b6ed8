import { PrefixIndex } from '../domain/balancing/prefix-index.js';
import { replicaKey } from '../domain/cluster.js';
import type { Clock, Timer } from '../shared/clock.js';
import type { Random } from '../shared/random.js';
import { EndpointState, type EndpointContext, type EvidenceTurn } from './endpoint-state.js';
import { ModelState } from './model-state.js';
import type { Principal } from './authoriser.js';
import type { RouteEndpoint, RouteModel, RoutingTable } from './ports.js';
import type { RoutingProfiles } from './routing-profiles.js';

/** How often, while somebody waits, it is looked whether an endpoint that was out may be asked again; time alone ends that. */
const LOOK_AGAIN_MS = 250;

export interface TableOptions {
  readonly clock: Clock;
  readonly random: Random;
  readonly profiles: RoutingProfiles;
  /** See {@link EndpointContext.probed}. */
  readonly probed: boolean;
  readonly evidenceTurned: (endpoint: EndpointState, turn: EvidenceTurn) => void;
}

/**
 * Applies routing tables and holds what lives longer than one of them: state per endpoint generation and per model.
 * An endpoint that left keeps its requests and its counts until the last one is over.
 */
export class EndpointTable implements EndpointContext {
  readonly clock: Clock;
  readonly random: Random;
  readonly probed: boolean;
  /** What the endpoints' prefix caches probably hold: one for all models, since its bytes are bounded as a whole. */
  readonly prefixes = new PrefixIndex();
  private version = -1;
  private readonly current = new Map<string, EndpointState>();
  private readonly leaving = new Set<EndpointState>();
  private readonly modelsByName = new Map<string, ModelState>();
  private names = new Map<string, ModelState>();
  private closed = false;
  /** Turns given to models so far. */
  private turns = 0;
  private lookingAgain: Timer | undefined;

  constructor(private readonly options: TableOptions) {
    this.clock = options.clock;
    this.random = options.random;
    this.probed = options.probed;
  }

  /** False when `table` is older than the one in force. */
  apply(table: RoutingTable): boolean {
    if (table.version < this.version) return false;
    this.version = table.version;
    this.applyEndpoints(table.endpoints);
    const now = this.clock.monotonicMs();
    this.applyModels(table.models, now);
    this.pump(this.modelsByName.values(), now);
    return true;
  }

  get appliedVersion(): number {
    return this.version;
  }

  /** The model a client means by `name`, which may be an alias. */
  find(name: string): ModelState | undefined {
    return this.names.get(name);
  }

  /**
   * The first fallback of `asked` that has something ready, is open to the principal and is not among `tried`. A model's
   * own fallbacks come after it and before the next of the list.
   */
  fallbackFor(
    asked: ModelState,
    principal: Principal,
    tried: readonly ModelState[] = [asked],
    seen = new Set<ModelState>([asked]),
  ): ModelState | undefined {
    for (const name of asked.info.fallback) {
      const other = this.names.get(name);
      if (other === undefined || seen.has(other)) continue;
      seen.add(other);
      if (other.ready && !tried.includes(other) && principal.mayUse(other.info)) return other;
      const further = this.fallbackFor(other, principal, tried, seen);
      if (further !== undefined) return further;
    }
    return undefined;
  }

  models(): Iterable<ModelState> {
    return this.modelsByName.values();
  }

  /** In the table now. */
  published(): Iterable<EndpointState> {
    return this.current.values();
  }

  /** Also those that left and still have requests. */
  all(): EndpointState[] {
    this.sweep();
    return [...this.current.values(), ...this.leaving];
  }

  get(id: string, generation: number): EndpointState | undefined {
    const key = replicaKey(id, generation);
    const current = this.current.get(key);
    if (current !== undefined) return current;
    for (const endpoint of this.leaving) if (endpoint.key === key) return endpoint;
    return undefined;
  }

  /** An attempt on `endpoint` ended: room for those who wait, and the end of an endpoint that was only finishing. */
  released(endpoint: EndpointState, nowMs: number): void {
    if (this.closed) return;
    if (endpoint.draining) {
      this.sweep();
      return;
    }
    let waiting: ModelState[] | undefined;
    for (const name of endpoint.models) {
      const model = this.modelsByName.get(name);
      if (model === undefined) continue;
      model.queue.departed(nowMs);
      if (model.queue.depth > 0) (waiting ??= []).push(model);
    }
    if (waiting !== undefined) this.pump(waiting, nowMs);
  }

  /**
   * Lets those go that wait for any of these models, while there is room: by priority, and then the models take turns. Without
   * turns, of two that share an endpoint the one listed first would get every place for as long as anybody waits for it.
   */
  private pump(models: Iterable<ModelState>, nowMs: number): void {
    const waiting = new Set<ModelState>();
    let left = 0;
    for (const model of models) {
      if (model.queue.depth > 0) waiting.add(model);
      left += model.queue.depth;
    }
    for (; left > 0 && waiting.size > 0; left--) {
      const next = firstOf(waiting);
      next.lastTurn = ++this.turns;
      if (!next.letOneGo(nowMs) || next.queue.depth === 0) waiting.delete(next);
    }
  }

  /** Somebody waits in a queue: if no request ends somewhere before, an endpoint's time out may. */
  awaitRoom(): void {
    if (!this.closed) this.lookingAgain ??= this.clock.setTimer(LOOK_AGAIN_MS, this.lookAgain);
  }

  private readonly lookAgain = (): void => {
    this.lookingAgain = undefined;
    if (this.closed) return;
    const now = this.clock.monotonicMs();
    this.pump(this.modelsByName.values(), now);
    for (const { queue } of this.modelsByName.values()) if (queue.depth > 0) return this.awaitRoom();
  };

  othersServing(endpoint: EndpointState): number {
    let fewest = Number.POSITIVE_INFINITY;
    const now = this.clock.monotonicMs();
    for (const name of endpoint.models) {
      const model = this.modelsByName.get(name);
      if (model === undefined) continue;
      let others = 0;
      for (const other of model.endpoints) {
        const serves = other.health.verdict(now) === 'serving' && other.seemsUp;
        if (other !== endpoint && serves) others += 1;
      }
      fewest = Math.min(fewest, others);
    }
    return fewest === Number.POSITIVE_INFINITY ? 0 : fewest;
  }

  evidenceTurned(endpoint: EndpointState, turn: EvidenceTurn): void {
    this.options.evidenceTurned(endpoint, turn);
  }

  /** From here on nobody who waits is let through; for the end of the process. */
  close(): void {
    this.closed = true;
    this.lookingAgain?.cancel();
  }

  /** Closes every connection. */
  destroy(): void {
    this.close();
    for (const endpoint of this.all()) endpoint.upstream.destroy();
  }

  private applyEndpoints(wanted: readonly RouteEndpoint[]): void {
    const kept = new Set<string>();
    for (const route of wanted) {
      const key = replicaKey(route.id, route.generation);
      kept.add(key);
      const known = this.current.get(key);
      if (known?.isAt(route) === true) {
        known.update(route);
        continue;
      }
      if (known !== undefined) this.retire(known);
      this.current.set(key, new EndpointState(route, this));
    }
    for (const [key, endpoint] of this.current) if (!kept.has(key)) this.retire(endpoint);
    // A new generation under the same id starts cold by itself; only what is gone for good makes room.
    const ids = new Set(wanted.map((route) => route.id));
    for (const endpoint of this.leaving) if (!ids.has(endpoint.id)) this.prefixes.drop(endpoint.id);
    this.sweep();
  }

  private retire(endpoint: EndpointState): void {
    endpoint.draining = true;
    this.current.delete(endpoint.key);
    this.leaving.add(endpoint);
    endpoint.upstream.closeIdle();
  }

  private sweep(): void {
    for (const endpoint of this.leaving) {
      if (endpoint.inflight > 0) continue;
      this.leaving.delete(endpoint);
      endpoint.upstream.destroy();
    }
  }

  private applyModels(wanted: readonly RouteModel[], nowMs: number): void {
    const kept = new Set(wanted.map((model) => model.name));
    for (const [name, model] of this.modelsByName) {
      if (kept.has(name)) continue;
      this.modelsByName.delete(name);
      model.serveWith([], nowMs);
      for (const ticket of model.queue.clear(nowMs)) ticket.arrival.payload.proceed();
    }
    for (const info of wanted) {
      const known = this.modelsByName.get(info.name);
      if (known === undefined) this.modelsByName.set(info.name, this.newModel(info));
      else {
        known.info = info;
        known.queue.max = this.queueMax(info);
      }
    }
    for (const model of this.modelsByName.values()) {
      const serving = [...this.current.values()].filter((endpoint) => endpoint.models.has(model.name));
      model.serveWith(serving, nowMs);
    }
    this.rebuildNames();
    for (const model of this.modelsByName.values()) {
      // Waiting was for something on its way; when nothing is any more, those who wait learn it now.
      if (model.ready || model.info.outlook !== 'none') continue;
      for (const ticket of model.queue.clear(nowMs)) ticket.arrival.payload.proceed();
    }
  }

  private newModel(info: RouteModel): ModelState {
    return new ModelState(info, this.queueMax(info), this.prefixes);
  }

  private queueMax(info: RouteModel): number {
    return this.options.profiles.get(info.routingProfile).queueMax;
  }

  /** A real name always wins over somebody else's alias. */
  private rebuildNames(): void {
    const names = new Map<string, ModelState>();
    for (const model of this.modelsByName.values()) {
      for (const alias of model.info.aliases) if (!names.has(alias)) names.set(alias, model);
    }
    for (const [name, model] of this.modelsByName) names.set(name, model);
    this.names = names;
  }
}

/** Whose turn it is: highest priority, then the longest ago. */
function firstOf(waiting: Iterable<ModelState>): ModelState {
  let first: ModelState | undefined;
  let highest = Number.NEGATIVE_INFINITY;
  for (const model of waiting) {
    const priority = model.queue.highestPriority ?? Number.NEGATIVE_INFINITY;
    const before = priority > highest || (priority === highest && model.lastTurn < (first?.lastTurn ?? 0));
    if (first !== undefined && !before) continue;
    first = model;
    highest = priority;
  }
  if (first === undefined) throw new RangeError('nobody waits');
  return first;
}
