/** The agent of one node, put together. */
import { mkdirSync, realpathSync } from 'node:fs';
import { join } from 'node:path';
import type { Hello, LogRequest } from '../agent-protocol/messages.js';
import type { AgentConfig } from '../config/agent-config.js';
import type { Clock } from '../shared/clock.js';
import { errorChain } from '../shared/errors.js';
import type { Logger } from '../shared/logger.js';
import type { Random } from '../shared/random.js';
import { systemChildWaits } from './child-waits.js';
import { ClockSkew } from './clock-skew.js';
import { endsWithAgent } from './container.js';
import { EngineHttp } from './engine-http.js';
import { EngineCatalog } from './engines/catalog.js';
import { findGpuDriver } from './gpu/find-driver.js';
import { GpuMonitor } from './gpu/monitor.js';
import type { AgentTimings } from './limits.js';
import { helloOf, stateDirectory, type StateDirectory } from './hello.js';
import { AgentLink } from './link.js';
import { LogRequests } from './log-requests.js';
import { LogWarden } from './log-warden.js';
import { agentMark } from './marker.js';
import { identifyNode, type NodeIdentity } from './node-facts.js';
import type { EngineOwner } from './ownership.js';
import { systemProcessTable, type ProcessTable } from './process-table.js';
import { ReadinessProbe } from './readiness.js';
import { Reaper } from './reaper.js';
import { ReportBuilder } from './report-builder.js';
import { SecretMemory } from './secrets.js';
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
  /** What becomes of engines. Where they would be killed with us TERM and a grace are kinder to whoever waits for an answer. */
  readonly onExit: AgentConfig['onExit'];
  private readonly stateDir: string;
  /** As it was when the lock was taken: one that is swapped under a living agent is another. */
  private readonly held: StateDirectory;
  private readonly processes: ProcessTable = systemProcessTable();
  private readonly lock: StateLock;
  private readonly http: EngineHttp;
  private readonly gpus: GpuMonitor;
  private readonly shards: ShardSet;
  private readonly warden: LogWarden;
  private readonly reaper: Reaper;
  private readonly secrets = new SecretMemory();
  private readonly skew: ClockSkew;
  private readonly logs: LogRequests;
  private readonly reports: ReportBuilder;
  private readonly link: AgentLink;
  private closing: Promise<void> | undefined;

  /** Claims the state directory; throws when another agent has it, or when the node's address cannot be told. */
  constructor(private readonly deps: AgentDeps) {
    const { config, logger, clock, timings } = deps;
    this.node = identifyNode(config);
    // Asked now: an agent whose parent ends later gets process 1 as a new one.
    this.onExit = endsWithAgent(this.processes, process) ? 'stop' : config.onExit;
    mkdirSync(config.stateDir, { recursive: true, mode: 0o700 });
    // The kernel tells paths without links, and by their logs engines are known.
    this.stateDir = realpathSync(config.stateDir);
    this.lock = StateLock.take(this.stateDir, this.processes);
    this.held = stateDirectory(this.stateDir);
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
    this.reaper = new Reaper({
      processes: this.processes,
      clock,
      timings,
      logger: logger.child({ component: 'reaper' }),
      pid: process.pid,
      waits: systemChildWaits,
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
      redactorOf: (shardId) => this.secrets.redactorOfKept(shardId),
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
      moreConditions: () => [...this.skew.conditions(), ...this.reaper.conditions()],
    });
    this.link = this.makeLink();
  }

  /** Takes over running engines, then dials the server. */
  async start(): Promise<void> {
    const { clock, timings, logger } = this.deps;
    if (!this.processes.canIdentify)
      logger.warn({}, 'no /proc on this system: engines of an earlier agent are not taken over');
    await this.reaper.start();
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
    if (this.onExit === 'stop') await this.shards.stopAll();
    this.warden.close(this.shards.anyLive);
    await this.shards.leaveAll();
    this.logs.closeAll();
    await this.link.close();
    await this.gpus.close();
    await this.http.close();
    this.reaper.close();
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
      secrets: this.secrets,
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
        this.shards.learnPorts(welcome.portRange);
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
    const { node, processes, deps } = this;
    const { config, build, instanceId, clock } = deps;
    const highestTerm = this.shards.highestTerm;
    const stateDir = this.held;
    const wallMs = clock.wallMs();
    return helloOf({ config, node, processes, stateDir, build, instanceId, highestTerm, wallMs });
  }
}
