import { PrefixIndex } from '../domain/balancing/prefix-index.js';
import { replicaKey } from '../domain/cluster.js';
import type { Clock } from '../shared/clock.js';
import type { Random } from '../shared/random.js';
import { EndpointState, type EndpointContext, type EvidenceTurn } from './endpoint-state.js';
import { ModelState } from './model-state.js';
import type { Principal } from './authoriser.js';
import type { RouteEndpoint, RouteModel, RoutingTable } from './ports.js';
import type { RoutingProfiles } from './routing-profiles.js';

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
    this.applyModels(table.models);
    const now = this.clock.monotonicMs();
    for (const model of this.modelsByName.values()) model.pump(now);
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
    for (const name of endpoint.models) {
      const model = this.modelsByName.get(name);
      if (model === undefined) continue;
      model.queue.departed(nowMs);
      if (model.queue.depth > 0) model.pump(nowMs);
    }
  }

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
  }

  /** Closes every connection. */
  destroy(): void {
    this.closed = true;
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

  private applyModels(wanted: readonly RouteModel[]): void {
    const kept = new Set(wanted.map((model) => model.name));
    for (const [name, model] of this.modelsByName) {
      if (kept.has(name)) continue;
      this.modelsByName.delete(name);
      model.endpoints = [];
      for (const ticket of model.queue.clear()) ticket.arrival.payload.proceed();
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
      model.endpoints = [...this.current.values()].filter((endpoint) => endpoint.models.has(model.name));
    }
    this.rebuildNames();
    for (const model of this.modelsByName.values()) {
      // Waiting was for something on its way; when nothing is any more, those who wait learn it now.
      if (model.ready || model.info.outlook !== 'none') continue;
      for (const ticket of model.queue.clear()) ticket.arrival.payload.proceed();
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
