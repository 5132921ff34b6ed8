/** The data path: clients that send requests to what is published, and what the router learns from it. */
import { replicaKey } from '../../src/domain/cluster.js';
import type { PublishedReplica } from '../../src/domain/plan.js';
import type { DataPathEvidence } from '../../src/domain/snapshot.js';
import type { Machine, Process } from './machine.js';
import type { World } from './world.js';

const FIRST_TOKEN_MS = 8_000;
const IDLE_MS = 15_000;

interface Request {
  readonly key: string;
  readonly machine: Machine;
  process: Process | undefined;
  done: boolean;
}

interface Evidence {
  lastByteMs?: number;
  firstTokenTimeouts: number;
  consecutiveFailures: number;
}

export class Router {
  table: readonly PublishedReplica[] = [];
  alive = true;
  readonly #requests = new Set<Request>();
  readonly #inflight = new Map<string, number>();
  readonly #evidence = new Map<string, Evidence>();

  constructor(private readonly world: World) {}

  apply(table: readonly PublishedReplica[]): void {
    this.table = table;
  }

  publishes(key: string): boolean {
    return this.table.some((one) => replicaKey(one.replicaId, one.generation) === key);
  }

  inflight(): ReadonlyMap<string, number> {
    return this.#inflight;
  }

  evidence(): ReadonlyMap<string, DataPathEvidence> {
    for (const request of this.#requests) {
      // A stream that flows yields bytes all the time.
      if (request.process?.state === 'ready' && !request.machine.dataCut)
        this.#of(request.key).lastByteMs = this.world.nowMs;
    }
    return this.#evidence;
  }

  /** One request for a model, to one of its endpoints at random. */
  send(model: string): void {
    const endpoints = this.table.filter((one) => one.model === model);
    const endpoint = endpoints[Math.floor(this.world.random() * endpoints.length)];
    if (endpoint === undefined) return;
    const machine = this.world.machine(endpoint.nodeId);
    const key = replicaKey(endpoint.replicaId, endpoint.generation);
    const process = machine.dataCut || !machine.up ? undefined : machine.listener(endpoint.port);
    if (process !== undefined && replicaKey(process.replicaId, process.generation) !== key)
      this.world.fail('misrouted', `a request for ${key} reached ${process.key} on ${machine.id}`);
    const request: Request = { key, machine, process, done: false };
    this.#requests.add(request);
    this.#inflight.set(key, (this.#inflight.get(key) ?? 0) + 1);
    const { queue } = this.world;
    if (machine.dataCut || !machine.up || process?.state === 'hung') {
      queue.after(FIRST_TOKEN_MS, () => this.#timeout(request));
    } else if (process === undefined || process.state === 'loading') {
      queue.after(5, () => this.#failed(request));
    } else {
      queue.after(20, () => this.#token(request));
      const [least, most] = this.world.dice.requestMs;
      queue.after(least + this.world.random() * (most - least), () => this.#ended(request));
    }
  }

  #token(request: Request): void {
    if (request.done || request.process?.state !== 'ready' || request.machine.dataCut) return;
    const evidence = this.#of(request.key);
    evidence.lastByteMs = this.world.nowMs;
    evidence.firstTokenTimeouts = 0;
    evidence.consecutiveFailures = 0;
  }

  #timeout(request: Request): void {
    if (request.done) return;
    const evidence = this.#of(request.key);
    evidence.firstTokenTimeouts += 1;
    evidence.consecutiveFailures += 1;
    this.#finish(request);
  }

  #failed(request: Request): void {
    if (request.done) return;
    this.#of(request.key).consecutiveFailures += 1;
    this.#finish(request);
  }

  #ended(request: Request): void {
    if (request.done) return;
    if (request.process?.state === 'ready' && !request.machine.dataCut) {
      this.#token(request);
      this.#finish(request);
    } else if (request.process?.state === 'dead') this.#failed(request);
    else this.world.queue.after(IDLE_MS, () => this.#failed(request));
  }

  /** The process is gone: whoever talked to it notices. */
  processEnded(process: Process): void {
    for (const request of this.#requests) if (request.process === process) this.#failed(request);
  }

  abort(key: string): void {
    for (const request of this.#requests) if (request.key === key) this.#finish(request);
  }

  openTo(process: Process): number {
    let count = 0;
    for (const request of this.#requests) if (request.process === process) count += 1;
    return count;
  }

  #finish(request: Request): void {
    request.done = true;
    this.#requests.delete(request);
    const left = (this.#inflight.get(request.key) ?? 0) - 1;
    if (left < 0) this.world.fail('inflight_negative', request.key);
    if (left <= 0) this.#inflight.delete(request.key);
    else this.#inflight.set(request.key, left);
  }

  #of(key: string): Evidence {
    const known = this.#evidence.get(key);
    if (known !== undefined) return known;
    const fresh: Evidence = { firstTokenTimeouts: 0, consecutiveFailures: 0 };
    this.#evidence.set(key, fresh);
    return fresh;
  }
}
