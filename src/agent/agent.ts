/** The agent of one node, put together. */
import { mkdirSync, realpathSync } from 'node:fs';
import { join } from 'node:path';
import type { Hello, LogRequest } from '../agent-protocol/messages.js';
import { OUR_VERSIONS } from '../agent-protocol/version.js';
import type { AgentConfig } from '../config/agent-config.js';
import type { NodeCondition } from '../domain/cluster.js';
import type { Clock } from '../shared/clock.js';
import { errorChain } from '../shared/errors.js';
import type { Logger } from '../shared/logger.js';
import type { Random } from '../shared/random.js';
import { ClockSkew } from './clock-skew.js';
import { EngineHttp } from './engine-http.js';
import { EngineCatalog } from './engines/catalog.js';
import { findGpuDriver } from './gpu/find-driver.js';
import { GpuMonitor } from './gpu/monitor.js';
import type { AgentTimings } from './limits.js';
import { AgentLink } from './link.js';
import { LogRequests } from './log-requests.js';
import { LogWarden } from './log-warden.js';
import { agentMark } from './marker.js';
import { identifyNode, type NodeIdentity } from './node-facts.js';
import type { EngineOwner } from './ownership.js';
import { systemProcessTable, type ProcessTable } from './process-table.js';
import { ReadinessProbe } from './readiness.js';
import { ReportBuilder } from './report-builder.js';
import { shardDirectory } from './shard-directory.js';
import type { RunnerDeps } from './shard-runner.js';
import { ShardSet } from './shard-set.js';
import { StateFile } from './state-file.js';
import { StateLock } from './state-lock.js';
import { Supervisor } from './supervisor.js';
import { within } from './wait.js';

export interface AgentDeps {
  readonly config: AgentConfig;
  readonly logger: Logger;
  readonly clock: Clock;
  readonly random: Random;
  readonly timings: AgentTimings;
  /** Version of the program, for the hello. */
  readonly build: string;
  /** Differs with each start of an agent. */
  readonly instanceId: string;
}

export class Agent {
  readonly node: NodeIdentity;
  private readonly stateDir: string;
  private readonly processes: ProcessTable = systemProcessTable();
  private readonly lock: StateLock;
  private readonly http: EngineHttp;
  private readonly gpus: GpuMonitor;
  private readonly shards: ShardSet;
  private readonly warden: LogWarden;
  private readonly skew: ClockSkew;
  private readonly logs: LogRequests;
  private readonly reports: ReportBuilder;
  private readonly link: AgentLink;
  private closing: Promise<void> | undefined;

  /** Claims the state directory; throws when another agent has it, or when the node's address cannot be told. */
  constructor(private readonly deps: AgentDeps) {
    const { config, logger, clock, timings } = deps;
    this.node = identifyNode(config);
    mkdirSync(config.stateDir, { recursive: true, mode: 0o700 });
    // The kernel tells paths without links, and by their logs engines are known.
    this.stateDir = realpathSync(config.stateDir);
    this.lock = StateLock.take(this.stateDir, this.processes);
    const stateFile = new StateFile(this.stateDir);
    const loaded = stateFile.load(clock.wallMs());
    this.skew = new ClockSkew(clock);
    this.http = new EngineHttp(clock);
    this.gpus = new GpuMonitor({
      driver: findGpuDriver(config.gpus, process.env),
      clock,
      logger: logger.child({ component: 'gpu' }),
      timings,
      isOurs: (pid) => this.shards.isOurs(pid),
      remembered: loaded.state.gpus,
      bootId: () => this.processes.bootId(),
      onChange: () => this.shards.save(),
    });
    const engines = new EngineCatalog(config, process.env);
    this.warden = new LogWarden({
      stateDir: this.stateDir,
      agent: agentMark(this.stateDir),
      processes: this.processes,
      clock,
      timings,
      logger: logger.child({ component: 'logs' }),
      wanted: () => this.shards.anyLive,
    });
    const runner = this.runnerDeps(engines);
    this.shards = new ShardSet({
      logger: logger.child({ component: 'shards' }),
      owner: this.owner,
      processes: this.processes,
      stateFile,
      loaded,
      gpus: () => this.gpus.remembered(),
      changed: () => this.link.notify(),
      runner: () => runner,
    });
    this.logs = new LogRequests({
      find: (shardId) => this.shards.find(shardId),
      directoryOf: (shardId) => shardDirectory(this.shardsDir, shardId),
      send: (chunk) => this.link.sendLog(chunk),
    });
    this.reports = new ReportBuilder({
      config: { modelRoots: config.modelRoots, stateDir: this.stateDir },
      clock,
      shards: this.shards,
      gpus: this.gpus,
      engines,
      timings,
      changed: () => this.link.notify(),
      moreConditions: () => [...this.skew.conditions(), ...withoutInit()],
    });
    this.link = this.makeLink();
  }

  /** Takes over running engines, then dials the server. */
  async start(): Promise<void> {
    const { clock, timings, logger } = this.deps;
    if (!this.processes.canIdentify)
      logger.warn({}, 'no /proc on this system: engines of an earlier agent are not taken over');
    for (const { reason } of withoutInit()) logger.warn({}, reason);
    await this.shards.recover();
    this.warden.start();
    this.gpus.start();
    // A first report without GPUs would be an incomplete one; but a stuck driver or file server must not keep the node away.
    await within(clock, timings.firstReportMs, Promise.all([this.gpus.fresh(), this.reports.refresh()]));
    this.link.start();
  }

  stopEngines(): Promise<void> {
    return this.shards.stopAll();
  }

  killEngines(): void {
    this.shards.killAll();
    this.warden.close(false);
  }

  /** Ends the agent; engines serve on, unless the configuration says otherwise. Harmless when repeated. */
  close(): Promise<void> {
    this.closing ??= this.end();
    return this.closing;
  }

  private async end(): Promise<void> {
    if (this.deps.config.onExit === 'stop') await this.shards.stopAll();
    this.warden.close(this.shards.anyLive);
    await this.shards.leaveAll();
    this.logs.closeAll();
    await this.link.close();
    await this.gpus.close();
    await this.http.close();
    this.lock.release();
  }

  private get owner(): EngineOwner {
    return { agent: agentMark(this.stateDir), shardsDir: this.shardsDir };
  }

  private get shardsDir(): string {
    return join(this.stateDir, 'shards');
  }

  private runnerDeps(engines: EngineCatalog): Omit<RunnerDeps, 'persist' | 'changed'> {
    const { config, logger, clock, timings } = this.deps;
    const { processes, http, gpus } = this;
    return {
      clock,
      timings,
      http,
      processes,
      gpus,
      engines,
      logger: logger.child({ component: 'shard' }),
      probe: new ReadinessProbe(http, timings),
      supervisor: new Supervisor({ owner: this.owner, processes, clock, timings }),
      checks: {
        clock,
        timings,
        gpus,
        stateDir: this.stateDir,
        holders: (except) => this.shards.holders(except),
        loaderOf: (source, except) => this.shards.loaderOf(source, except),
      },
      warden: this.warden,
      launch: {
        modelRoots: config.modelRoots,
        bindHost: this.node.bindHost,
        ...(this.node.interfaceName === undefined ? {} : { interfaceName: this.node.interfaceName }),
        ownEnv: process.env,
      },
      shardsDir: this.shardsDir,
    };
  }

  private makeLink(): AgentLink {
    const { config, logger, clock, random, timings } = this.deps;
    return new AgentLink({
      server: config.server,
      tls: config.tls,
      joinTokenFile: config.joinTokenFile,
      clock,
      random,
      timings,
      logger: logger.child({ component: 'link' }),
      heartbeatMs: config.heartbeat,
      hello: () => this.hello(),
      report: (sequence, max, withTails) => this.reports.build(sequence, max, withTails),
      highestTerm: () => this.shards.highestTerm,
      welcomed: (welcome) => {
        this.shards.raiseTerm(welcome.term);
        this.skew.welcomed(welcome);
      },
      order: (message) => {
        switch (message.kind) {
          case 'start':
            return this.shards.start(message.order);
          case 'stop':
            return this.shards.stop(message.order);
          case 'drain':
            return this.shards.drain(message.order);
        }
      },
      fetchLogs: (request) => void this.fetchLogs(request),
      drained: () => this.logs.drained(),
      closed: () => this.logs.closeAll(),
    });
  }

  private async fetchLogs(request: LogRequest): Promise<void> {
    try {
      await this.logs.handle(request);
    } catch (error) {
      this.deps.logger.warn({ shard: request.shardId, causes: errorChain(error) }, 'log request failed');
    }
  }

  private hello(): Omit<Hello, 'joinToken'> {
    const { node, deps } = this;
    const bootId = this.processes.bootId();
    return {
      protocolVersion: OUR_VERSIONS.version,
      minProtocolVersion: OUR_VERSIONS.min,
      build: deps.build,
      nodeId: node.nodeId,
      ...(node.machineId === undefined ? {} : { machineId: node.machineId }),
      ...(bootId === undefined ? {} : { bootId }),
      instanceId: deps.instanceId,
      labels: deps.config.labels,
      address: node.address,
      hostname: node.hostname,
      highestTerm: this.shards.highestTerm,
      wallMs: deps.clock.wallMs(),
    };
  }
}

/** Orphans of engines become children of process 1, and Node waits only for children that it started. */
function withoutInit(): NodeCondition[] {
  if (process.pid !== 1) return [];
  const reason =
    'the agent is process 1: what engines leave behind stays a zombie; run it under an init (tini)';
  return [{ type: 'NoInit', reason, blocksPlacement: false }];
}
