import {
  Inject,
  Injectable,
  Optional,
  type BeforeApplicationShutdown,
  type OnApplicationBootstrap,
} from '@nestjs/common';
import { register } from 'prom-client';
import { SERVER_CONFIG, type ServerConfig } from '../config/server-config.js';
import type { DataPathEvidence } from '../domain/snapshot.js';
import { CLOCK, type Clock } from '../shared/clock.js';
import { LOGGER, type Logger } from '../shared/logger.js';
import { AUTHORISER, type Authoriser } from './authoriser.js';
import type { RequestExplanation } from './explanation.js';
import { CLIENT_SOCKET, type EndpointStatus, type RouterPort, type RoutingTable } from './ports.js';
import type { ModelTraffic } from './traffic.js';
import { Router } from './router.js';

/** The data plane as a Nest provider: it listens when the application is up and drains before it goes down. */
@Injectable()
export class RouterService implements RouterPort, OnApplicationBootstrap, BeforeApplicationShutdown {
  private readonly router: Router;

  constructor(
    @Inject(SERVER_CONFIG) private readonly config: ServerConfig,
    @Inject(LOGGER) private readonly logger: Logger,
    @Inject(AUTHORISER) authoriser: Authoriser,
    /** Descriptor of a listening socket to serve on instead of the configured address. */
    @Optional() @Inject(CLIENT_SOCKET) private readonly socketFd: number | undefined,
    @Inject(CLOCK) clock: Clock,
  ) {
    this.router = new Router({ config, logger: logger.child({ component: 'router' }), authoriser, clock });
  }

  async onApplicationBootstrap(): Promise<void> {
    this.router.metrics.registerOn(register, this.router);
    const at = this.socketFd === undefined ? this.config.listen : { fd: this.socketFd };
    const { address, port } = await this.router.listen(at);
    const handedOver = this.socketFd !== undefined;
    this.logger.info({ component: 'router', address, port, handedOver }, 'client API is up');
  }

  async beforeApplicationShutdown(): Promise<void> {
    await this.router.close(this.config.shutdownGrace, this.config.shutdownDelay);
  }

  /** Ends every request that runs; see {@link Router.endNow}. */
  endNow(): Promise<void> {
    return this.router.endNow();
  }

  /** Listening and not on its way out; for `/readyz`. */
  get ready(): boolean {
    return this.router.ready;
  }

  /** Where clients are served; useful when the port was left to the system. */
  get address(): { readonly address: string; readonly port: number } | undefined {
    return this.router.address;
  }

  /** Takes another configuration into force; see {@link Router.reconfigure}. */
  reconfigure(config: ServerConfig): void {
    this.router.reconfigure(config);
  }

  applyTable(table: RoutingTable): void {
    this.router.applyTable(table);
  }

  inflight(): ReadonlyMap<string, number> {
    return this.router.inflight();
  }

  evidence(): ReadonlyMap<string, DataPathEvidence> {
    return this.router.evidence();
  }

  abortInflight(id: string, generation: number, reason: 'shutting_down' | 'upstream_aborted'): number {
    return this.router.abortInflight(id, generation, reason);
  }

  endpoints(): readonly EndpointStatus[] {
    return this.router.endpoints();
  }

  traffic(): ReadonlyMap<string, ModelTraffic> {
    return this.router.traffic();
  }

  onEvidence(listener: () => void): void {
    this.router.onEvidence(listener);
  }

  /** Everything known of one of the last requests; undefined when it is forgotten or never was. */
  explainRequest(requestId: string): RequestExplanation | undefined {
    return this.router.explainRequest(requestId);
  }

  /** Ids of last requests that begin so, the newest first. */
  requestIds(beginning: string): readonly string[] {
    return this.router.requestIds(beginning);
  }
}
