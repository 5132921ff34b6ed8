/**
 * The doors of the router. It knows nothing of the control plane: a routing table comes in, counts and evidence go out.
 * Nothing is shared but these values, so the same table can later travel to router processes elsewhere.
 */
import type { CanarySide, EngineKind } from '../domain/model-spec.js';
import type { DataPathEvidence } from '../domain/snapshot.js';
import type { ModelTraffic, TrafficCounts } from './traffic.js';

/** Something requests can be sent to: a published replica's rank 0, or a static address from the configuration. */
export interface RouteEndpoint {
  /** Replica id, or the id given in the configuration. */
  readonly id: string;
  /** Counts and evidence are kept per generation: a new one starts from zero. 0 for static endpoints. */
  readonly generation: number;
  readonly protocol: 'http' | 'https';
  readonly host: string;
  readonly port: number;
  /** Path prefix before `/v1/...`, without a trailing slash; usually empty. */
  readonly basePath: string;
  /** Model names served here, as engines know them. */
  readonly models: readonly string[];
  readonly pool: string;
  readonly weight: number;
  readonly engine: EngineKind | 'unknown';
  readonly maxConcurrency?: number;
  /** Credential for this endpoint; never leaves the process but in its Authorization header. */
  readonly apiKey?: string;
  /** For people: the node it runs on. */
  readonly nodeId?: string;
}

/** What the router must know of a model, with or without a Ready endpoint. */
export interface RouteModel {
  readonly name: string;
  readonly aliases: readonly string[];
  readonly routingProfile: string;
  /** Models that answer when nothing of this one is ready or all its attempts failed; their own follow them. */
  readonly fallback: readonly string[];
  /** Shares of its requests that go elsewhere on trial. */
  readonly canary?: readonly CanarySide[];
  /** Desired replicas; 0 = switched off by its operator. */
  readonly desired: number;
  /** `coming`: none Ready but one is on its way, so requests may wait. */
  readonly outlook: 'ready' | 'coming' | 'none';
  /** Expected time until a replica is Ready, ms, while `coming` and known. */
  readonly expectedReadyMs?: number;
}

/** The whole table; applied at once, replacing the one before. */
export interface RoutingTable {
  /** Grows with each table; an older one is never applied over a newer one. */
  readonly version: number;
  readonly models: readonly RouteModel[];
  readonly endpoints: readonly RouteEndpoint[];
}

export type EndpointStanding = 'up' | 'unknown' | 'down' | 'ejected' | 'trial' | 'coolingDown';

/** Live facts about one endpoint generation. */
export interface EndpointStatus {
  readonly endpoint: RouteEndpoint;
  readonly inflight: number;
  readonly outstandingTokens: number;
  /**
   * Whether requests are sent there now. `unknown`: it has shown no sign of life yet, nor of its absence; `down`: nobody
   * seems to be there, so requests go there only when nothing else is left.
   */
  readonly state: EndpointStanding;
  readonly reason?: string;
  readonly evidence: DataPathEvidence;
  readonly requestsTotal: number;
  readonly failuresTotal: number;
  readonly traffic: TrafficCounts;
  /** From the engine's own metrics, when scraped. */
  readonly engineRunning?: number;
  readonly engineWaiting?: number;
}

/** What the control plane may ask of the router. */
export interface RouterPort {
  /**
   * Replaces the routing table. When this returns, no new request starts towards an endpoint that is no longer in it;
   * requests already running there go on and stay counted.
   */
  applyTable(table: RoutingTable): void;
  /** Requests in flight per `id@generation`, also for endpoints that left the table and still have some. */
  inflight(): ReadonlyMap<string, number>;
  /** What the data path knows, per `id@generation`. */
  evidence(): ReadonlyMap<string, DataPathEvidence>;
  /** Ends the requests still running on an endpoint generation (the stream grace is over): each client gets an error event. */
  abortInflight(id: string, generation: number, reason: 'shutting_down' | 'upstream_aborted'): number;
  endpoints(): readonly EndpointStatus[];
  /** What passes for each model of the table, by name. */
  traffic(): ReadonlyMap<string, ModelTraffic>;
  /** Calls back when evidence turned bad enough that the control plane should look now. */
  onEvidence(listener: () => void): void;
}

export const ROUTER_PORT = Symbol('RouterPort');

/** Descriptor of a listening socket that was handed to this process, where there is one. */
export const CLIENT_SOCKET = Symbol('ClientSocket');
