import 'reflect-metadata';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { createServer as createHttpsServer, type Server as HttpsServer } from 'node:https';
import { ValidationPipe } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { FastifyAdapter, type NestFastifyApplication } from '@nestjs/platform-fastify';
import type { FastifyInstance } from 'fastify';
import { register } from 'prom-client';
import { ConfigReloadService, reloadCaller, type ConfigSource } from '../admin-api/config-reload.service.js';
import { AdminErrorFilter, answerBadAddress } from '../admin-api/admin-error.filter.js';
import { certificateState } from '../admin-api/certificate-state.js';
import { installJsonBody } from '../admin-api/json-body.js';
import { Readiness } from '../admin-api/readiness.js';
import { installRequestChecks } from '../admin-api/request-checks.js';
import { RouteIndex } from '../admin-api/route-index.js';
import { ServerFacts } from '../admin-api/server-facts.js';
import { adminValidation } from '../admin-api/validation.js';
import { AgentGatewayService } from '../agent-gateway/agent-gateway.service.js';
import { agentCredentials, AgentGrpcServer, quietGrpc } from '../agent-gateway/agent-grpc-server.js';
import { formatAddress, parseAddress, type SocketAddress } from '../config/address.js';
import { exposureProblems } from '../config/check-server.js';
import { ConfigInForce } from '../config/config-in-force.js';
import type { ServerConfig } from '../config/server-config.js';
import { EVENT_LOG, type EventLog } from '../events/event-log.js';
import { RoutePublisher } from '../reconciler/route-publisher.js';
import { RouterService } from '../router/router.service.js';
import { buildVersion } from '../shared/build-info.js';
import { systemClock, type Clock } from '../shared/clock.js';
import { ConfigError, errorChain, OperatorError } from '../shared/errors.js';
import type { Logger } from '../shared/logger.js';
import { NestLogger } from '../shared/nest-logger.js';
import { systemRandom, type Random } from '../shared/random.js';
import type { LiveTls } from '../shared/tls-files.js';
import { Term } from '../store/term.js';
import { ConfigWatch, ToldSource } from './config-watch.js';
import { ListenerCertificates, type TlsOfListeners } from './listener-certificates.js';
import { isControlPlane, openStore } from './open-store.js';
import type { ServerParts } from './server-parts.js';
import { ServerModule } from './server.module.js';

/** Time beyond the grace for everything that is not a running request, ms. */
const CLOSE_SLACK_MS = 1_000;

export interface StartContext {
  readonly logger: Logger;
  /** Tests bring their own. */
  readonly clock?: Clock;
  readonly random?: Random;
  /** Chance of what the control plane decides (ids, jitter of waits) alone: elsewhere chance is drawn at no fixed time. */
  readonly decisionRandom?: Random;
  /** Descriptor of a listening socket that takes the place of `listen`. */
  readonly clientSocketFd?: number | undefined;
  /** Where a reload reads the configuration from; without it a reload finds what the server was started with. */
  readonly source?: ConfigSource;
}

/** A server that is up. */
export interface RunningServer {
  /** `host:port` of each listener; `agent` only with a control plane. */
  readonly addresses: { readonly client: string; readonly admin: string; readonly agent?: string };
  /**
   * Ends: not ready, after `shutdownDelay` no new connections, running requests have `graceMs`, then everything closes.
   * Engines are not touched. A second call while the first is running ends at once. Settles when nothing is left.
   */
  close(graceMs?: number): Promise<void>;
  /** For an end in a hurry: every request that runs gets its error now. Settles when these had time to leave. */
  endNow(): Promise<void>;
  /** Reads the configuration again and puts it in force; what is not valid is told by log, event, metric and status. */
  reload(askedBy: string): void;
  /** For tests and embedding: the application behind it. */
  readonly app: NestFastifyApplication;
}

/**
 * Starts a server. When anything fails, nothing half-open is left and the error says what is in the way: a
 * {@link ConfigError}, a StoreError, or the error of the address that could not be bound.
 */
export async function startServer(config: ServerConfig, context: StartContext): Promise<RunningServer> {
  refuseExposure(config);
  // Metrics of an earlier server in this process; prom-client knows one registry.
  register.clear();
  const parts = makeParts(config, context);
  let app: NestFastifyApplication | undefined;
  try {
    app = await createApp(parts);
    return await listen(app, parts);
  } catch (error) {
    await app?.close().catch(() => undefined);
    parts.certificates.close();
    parts.store.close();
    throw error;
  }
}

function refuseExposure(config: ServerConfig): void {
  const problems = exposureProblems(config);
  if (problems.length === 0) return;
  throw new ConfigError(problems.map((problem) => ({ source: 'configuration', ...problem })));
}

function makeParts(config: ServerConfig, context: StartContext): ServerParts {
  const clock = context.clock ?? systemClock;
  const store = openStore(config, clock, context.logger);
  try {
    const mode = isControlPlane(config) ? 'control' : 'router';
    const inForce = new ConfigInForce(config);
    const logger = context.logger.child({ component: 'certificates' });
    const certificates = new ListenerCertificates(listenersWithTls(config, mode), clock, logger);
    const facts = new ServerFacts(buildVersion(), mode, clock.monotonicMs(), clock.wallMs());
    facts.certificates = certificates.all;
    return {
      config: inForce.view,
      inForce,
      source: new ToldSource(
        context.source ?? { load: () => ({ config, warnings: [], origins: new Map() }) },
      ),
      clock,
      store,
      logger: context.logger,
      random: context.random ?? systemRandom,
      decisionRandom: context.decisionRandom ?? context.random ?? systemRandom,
      term: new Term(store),
      facts,
      readiness: new Readiness(),
      certificates,
      clientSocketFd: context.clientSocketFd,
    };
  } catch (error) {
    store.close();
    throw error;
  }
}

/** A router-only server has no agent listener, whatever its configuration says of one. */
function listenersWithTls({ auth }: ServerConfig, mode: ServerFacts['mode']): TlsOfListeners {
  return {
    ...(auth.admin.tls === undefined ? {} : { admin: auth.admin.tls }),
    ...(auth.agents.tls === undefined || mode === 'router' ? {} : { agent: auth.agents.tls }),
  };
}

async function createApp(parts: ServerParts): Promise<NestFastifyApplication> {
  const { config } = parts;
  const routes = new RouteIndex();
  const adapter = new FastifyAdapter({
    // Open event streams and idle keep-alive connections would otherwise keep the close waiting for minutes.
    forceCloseConnections: true,
    routerOptions: { maxParamLength: 512 },
    frameworkErrors: answerBadAddress,
    ...httpsOptions(parts.certificates.of('admin')),
  });
  const fastify = adapter.getInstance() as unknown as FastifyInstance;
  routes.watch(fastify);
  installRequestChecks(fastify, config);
  const app = await NestFactory.create<NestFastifyApplication>(
    parts.facts.mode === 'control' ? ServerModule.controlPlane(parts) : ServerModule.routerOnly(parts),
    adapter,
    { logger: new NestLogger(parts.logger), abortOnError: false, bodyParser: false },
  );
  installJsonBody(fastify);
  app.useGlobalFilters(new AdminErrorFilter(parts.logger.child({ component: 'admin-api' }), routes));
  app.useGlobalPipes(new ValidationPipe(adminValidation));
  return app;
}

/**
 * Fastify makes one server for each address of a name; every one of them takes a new certificate. What Fastify would set
 * on its own server is set here.
 */
function httpsOptions(live: LiveTls | undefined) {
  if (live === undefined) return {};
  const serverFactory = (
    handler: (request: IncomingMessage, response: ServerResponse) => void,
    options: { keepAliveTimeout?: number; requestTimeout?: number; connectionTimeout?: number },
  ): HttpsServer => {
    const server = createHttpsServer(
      { ...live.material, requestCert: live.material.ca !== undefined },
      handler,
    );
    live.follow((material) => server.setSecureContext({ ...material }));
    if (options.keepAliveTimeout !== undefined) server.keepAliveTimeout = options.keepAliveTimeout;
    if (options.requestTimeout !== undefined) server.requestTimeout = options.requestTimeout;
    return server.setTimeout(options.connectionTimeout ?? 0);
  };
  return { serverFactory };
}

async function listen(app: NestFastifyApplication, parts: ServerParts): Promise<RunningServer> {
  const { config, facts } = parts;
  const agents = facts.mode === 'control' ? connectAgents(app, parts) : undefined;
  addChecks(app, parts);
  // The client listener comes up with the application's own start, after the first reconcile pass.
  await naming('listen', config.listen, app.init());
  facts.addresses.client = formatListening(app.get(RouterService).address, config.listen);
  if (agents !== undefined) {
    await naming('agentListen', config.agentListen, app.startAllMicroservices());
    facts.addresses.agent = formatAddress({
      host: addressOf(config.agentListen).host,
      port: agents.port ?? 0,
    });
  }
  const admin = addressOf(config.adminListen);
  await naming('adminListen', config.adminListen, app.listen(admin.port, admin.host));
  facts.addresses.admin = formatListening(app.getHttpServer().address(), config.adminListen);
  const { client, admin: adminAddress, agent } = facts.addresses;
  const watch = watchConfig(app, parts);
  parts.certificates.watch(app.get(EVENT_LOG, { strict: false }));
  return {
    app,
    addresses: { client, admin: adminAddress, ...(agent === undefined ? {} : { agent }) },
    close: closer(app, parts, watch),
    endNow: () => app.get(RouterService).endNow(),
    reload: (askedBy) => reload(app, parts, askedBy),
  };
}

function reload(app: NestFastifyApplication, { logger }: ServerParts, askedBy: string): void {
  try {
    app.get(ConfigReloadService, { strict: false }).reload(reloadCaller(askedBy));
  } catch (error) {
    // Told where it was decided; anything else must not end the process for want of a caller.
    const told = error instanceof OperatorError && error.code === 'invalid_configuration';
    if (!told) logger.error({ causes: errorChain(error) }, 'the configuration could not be reloaded');
  }
}

function watchConfig(app: NestFastifyApplication, parts: ServerParts): ConfigWatch | undefined {
  const { source, clock, logger, config } = parts;
  if (source.file === undefined) return undefined;
  const watch = new ConfigWatch({
    file: source.file,
    clock,
    logger: logger.child({ component: 'config' }),
    wanted: () => config.watchConfig,
    changed: () => reload(app, parts, 'file watch'),
  });
  source.told = () => watch.readElsewhere();
  return watch;
}

function connectAgents(app: NestFastifyApplication, parts: ServerParts): AgentGrpcServer {
  const { agentListen } = parts.config;
  quietGrpc(parts.logger);
  const credentials = agentCredentials(parts.certificates.of('agent'));
  const server = new AgentGrpcServer(addressOf(agentListen), credentials, parts.clock);
  app.get(AgentGatewayService, { strict: false }).onAnswered((peer) => server.answered(peer));
  app.connectMicroservice({ strategy: server });
  return server;
}

function addChecks(app: NestFastifyApplication, parts: ServerParts): void {
  const { readiness, store, facts, certificates } = parts;
  const router = app.get(RouterService);
  readiness.add('client-listener', () => router.ready || 'the client listener is not open');
  readiness.add('store', () => {
    const health = store.health();
    return health.ok || (health.reason ?? 'it takes no writes');
  });
  for (const one of certificates.all)
    readiness.note(`${one.listener}-certificate`, () => certificateState(one, parts.clock.wallMs()));
  if (facts.mode === 'control') {
    const publisher = app.get(RoutePublisher, { strict: false });
    readiness.add('routing-table', () => publisher.published || 'the router has no table yet');
    readiness.add(
      'agent-listener',
      () => facts.addresses.agent !== undefined || 'the agent listener is not open',
    );
  }
}

function closer(
  app: NestFastifyApplication,
  parts: ServerParts,
  watch: ConfigWatch | undefined,
): (graceMs?: number) => Promise<void> {
  let closing: Promise<void> | undefined;
  return (graceMs = parts.config.shutdownGrace) => {
    if (closing !== undefined) {
      // Asked twice: whoever waits does not want to wait any more.
      app.getHttpServer().closeAllConnections();
      return closing;
    }
    watch?.close();
    parts.certificates.close();
    parts.readiness.drain(new Date(parts.clock.wallMs()).toISOString());
    closing = closeWithin(app, parts, parts.config.shutdownDelay + graceMs + CLOSE_SLACK_MS);
    return closing;
  };
}

async function closeWithin(app: NestFastifyApplication, parts: ServerParts, boundMs: number): Promise<void> {
  const timer = parts.clock.setTimer(boundMs, () => app.getHttpServer().closeAllConnections());
  try {
    await app.close();
  } finally {
    timer.cancel();
    closeEvents(app, parts.logger);
    parts.store.close();
  }
}

/** A store that takes nothing keeps nobody from ending. */
function closeEvents(app: NestFastifyApplication, logger: Logger): void {
  try {
    app.get<EventLog>(EVENT_LOG, { strict: false }).close();
  } catch (error) {
    logger.warn({ causes: errorChain(error) }, 'the last events could not be stored');
  }
}

function addressOf(text: string): SocketAddress {
  const parsed = parseAddress(text);
  if (!parsed.ok) throw new ConfigError([{ source: 'configuration', message: parsed.problem }]);
  return parsed.value;
}

function formatListening(
  bound: { readonly port: number } | string | null | undefined,
  configured: string,
): string {
  const port = typeof bound === 'object' && bound !== null ? bound.port : 0;
  return formatAddress({ host: addressOf(configured).host, port });
}

/** Adds to a failed bind which setting it was; the error's own fields are kept for whoever explains it. */
async function naming(setting: string, address: string, starting: Promise<unknown>): Promise<void> {
  try {
    await starting;
  } catch (error) {
    if (error instanceof Error && !error.message.includes(address)) {
      error.message = `${setting} ${address}: ${error.message}`;
    }
    throw error;
  }
}
