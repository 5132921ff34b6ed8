/**
 * The life of one start of one shard, from the command to the last process of its group. It never restarts anything:
 * it says what it sees, and the control plane decides.
 */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import type { ShardPhase, ShardReport } from '../domain/cluster.js';
import type { StartShardCommand } from '../domain/plan.js';
import type { Clock } from '../shared/clock.js';
import { errorChain } from '../shared/errors.js';
import type { Logger } from '../shared/logger.js';
import {
  untilReady,
  whileReady,
  type OnPhase,
  type WatchDeps,
  type WatchFailure,
  type WatchTarget,
} from './engine-watch.js';
import type { EngineCatalog } from './engines/catalog.js';
import { isRefusal, type EngineDriver, type Refusal } from './engines/driver.js';
import type { Launch, LaunchSettings } from './engines/launch.js';
import { readVerdict, withCause } from './engines/verdicts.js';
import type { GpuMonitor } from './gpu/monitor.js';
import { withFullDisk } from './full-disk.js';
import { gpuUsage } from './gpu/usage.js';
import { LoadProgress } from './load-progress.js';
import type { LogWarden } from './log-warden.js';
import { optional } from './optional.js';
import { planStart } from './plan-start.js';
import type { ProcessTable } from './process-table.js';
import { readLogFile, RunLog } from './run-log.js';
import { secretsOf, secretVariables, type SecretMemory } from './secrets.js';
import { shardDirectory } from './shard-directory.js';
import { shardReport } from './shard-report.js';
import { shardSpecOf, type ShardSpec } from './shard-spec.js';
import {
  diskHasRoom,
  gpusHaveRoom,
  gpusLetGo,
  peersListen,
  portsAreFree,
  turnToLoad,
  weightsAreWhole,
  type StartChecksDeps,
  type Waiting,
} from './start-checks.js';
import type { StoredEnd, StoredShard } from './state-file.js';
import { SpawnError, type EngineProcess, type ProcessIdentity, type Supervisor } from './supervisor.js';
import { aborted, pause } from './wait.js';

export interface RunnerDeps extends WatchDeps {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly supervisor: Supervisor;
  readonly processes: ProcessTable;
  readonly engines: EngineCatalog;
  readonly gpus: GpuMonitor;
  readonly checks: StartChecksDeps;
  readonly launch: LaunchSettings;
  readonly warden: Pick<LogWarden, 'ensure'>;
  readonly secrets: SecretMemory;
  /** Directory with one directory per shard: logs, and the engine's working directory. */
  readonly shardsDir: string;
  /** Makes the state durable; false when that failed, with the reason logged. */
  readonly persist: () => boolean;
  /** Something worth a report happened. */
  readonly changed: () => void;
}

/** What became of the engine under watch. */
type Outcome =
  | { readonly kind: 'exited'; readonly code?: number; readonly signal?: NodeJS.Signals }
  | { readonly kind: 'failed'; readonly failure: WatchFailure }
  | { readonly kind: 'stop' }
  /** The agent ends and the engine serves on. */
  | { readonly kind: 'left' };

const STOPPED: StoredEnd = { verdict: 'stopped', message: 'stopped as asked' };
/** The rest of a group whose leader ended by itself has nothing left to finish. */
const LEFTOVER_GRACE_MS = 2_000;

export class ShardRunner {
  readonly spec: ShardSpec;
  /** Settles when nothing of the shard lives any more. */
  readonly done: Promise<void>;
  private settle: () => void = () => {};
  private phase: ShardPhase = 'starting';
  private phaseSinceMs: number;
  private text: string | undefined;
  private process: EngineProcess | undefined;
  private end: StoredEnd | undefined;
  private ready = false;
  private draining = false;
  private loads = false;
  private loadMs: number | undefined;
  private memoryPeakBytes: number | undefined;
  private log: RunLog | undefined;
  /** Output of a run that ended under an earlier agent. */
  private lastLines: readonly string[] = [];
  private graceMs: number;
  private readonly stopping = new AbortController();
  private readonly leaving = new AbortController();

  private constructor(
    spec: ShardSpec,
    private readonly deps: RunnerDeps,
  ) {
    this.spec = spec;
    this.graceMs = spec.stopGraceMs;
    this.phaseSinceMs = deps.clock.monotonicMs();
    this.done = new Promise((resolve) => (this.settle = resolve));
  }

  /** Begins a start; `after` is the end of the shard's earlier generation. */
  static start(command: StartShardCommand, deps: RunnerDeps, after: Promise<void>): ShardRunner {
    const runner = new ShardRunner(shardSpecOf(command), deps);
    void runner.run(async () => {
      await after;
      return runner.startAndWatch(command);
    });
    return runner;
  }

  /** Takes over an engine that an earlier agent started. */
  static adopt(stored: StoredShard, identity: ProcessIdentity, deps: RunnerDeps): ShardRunner {
    const runner = new ShardRunner(stored.spec, deps);
    runner.ready = stored.ready;
    runner.loadMs = stored.loadMs;
    runner.memoryPeakBytes = stored.memoryPeakBytes;
    if (stored.ready) runner.phase = 'ready';
    runner.process = deps.supervisor.adopt(stored.spec, identity, runner.leaving.signal);
    void runner.run(() => runner.takeOver(identity));
    return runner;
  }

  /** The record of a shard that has ended; `unseen` = nobody saw its end, so only its output can tell more. */
  static async ended(
    stored: StoredShard,
    end: StoredEnd,
    unseen: boolean,
    deps: RunnerDeps,
  ): Promise<ShardRunner> {
    const runner = new ShardRunner(stored.spec, deps);
    runner.loadMs = stored.loadMs;
    runner.memoryPeakBytes = stored.memoryPeakBytes;
    const redact = deps.secrets.redactorOfKept(stored.spec.shardId);
    runner.lastLines = await readLogFile(RunLog.currentFile(runner.directory), redact);
    runner.finish(unseen ? { ...end, ...readVerdict({}, runner.lastLines) } : end);
    return runner;
  }

  get hasEnded(): boolean {
    return this.end !== undefined;
  }
  /** True from its turn to load until Ready or the end: it may be fetching weights. */
  get isLoading(): boolean {
    return (this.loads || this.process !== undefined) && !this.ready && this.end === undefined;
  }
  get leaderPid(): number | undefined {
    return this.process?.identity.pid;
  }
  get directory(): string {
    return shardDirectory(this.deps.shardsDir, this.spec.shardId);
  }
  /** The output of the present run; undefined when nothing was started. */
  get output(): RunLog | undefined {
    return this.log;
  }

  /** Ends the shard: TERM, grace, KILL. Harmless when repeated; a shorter grace wins. */
  stop(graceMs: number): Promise<void> {
    if (!this.stopping.signal.aborted || graceMs < this.graceMs) this.graceMs = graceMs;
    this.stopping.abort();
    return this.leaving.signal.aborted ? Promise.resolve() : this.done;
  }

  /** While it drains the engine is asked for no tokens of ours. */
  drain(draining: boolean): void {
    this.draining = draining;
  }

  /** KILL to everything of the shard, at once and without waiting. */
  kill(): void {
    this.process?.kill();
  }

  /** Stops watching without touching the engine: the agent ends, the engine serves on. */
  async leave(): Promise<void> {
    this.leaving.abort();
    await this.log?.close();
  }

  report(): ShardReport {
    return shardReport(this.spec, {
      phase: this.phase,
      phaseAgeMs: this.deps.clock.monotonicMs() - this.phaseSinceMs,
      text: this.text,
      pid: this.leaderPid,
      end: this.end,
      loadMs: this.loadMs,
      memoryPeakBytes: this.memoryPeakBytes,
      lines: this.log?.lines() ?? this.lastLines,
    });
  }

  stored(): StoredShard {
    return {
      spec: this.spec,
      ready: this.ready,
      ...optional('process', this.process?.identity),
      ...optional('loadMs', this.loadMs),
      ...optional('memoryPeakBytes', this.memoryPeakBytes),
      ...optional('end', this.end),
    };
  }

  /** `life` gives the end of the shard, or nothing when the agent left before it. */
  private async run(life: () => Promise<StoredEnd | undefined>): Promise<void> {
    try {
      const end = await life();
      if (end !== undefined) this.finish(end);
    } catch (error) {
      this.deps.logger.error({ shard: this.spec.shardId, causes: errorChain(error) }, 'shard runner failed');
      // Whatever went wrong in here, an engine nobody watches must not stay.
      await this.process?.end(() => this.graceMs);
      this.finish({ verdict: 'unknown', message: `the agent failed: ${errorChain(error).join(': ')}` });
    }
  }

  private finish(end: StoredEnd): void {
    this.end = end;
    this.ready = false;
    this.deps.logger.info(
      {
        shard: this.spec.shardId,
        generation: this.spec.generation,
        verdict: end.verdict,
        reason: end.message,
      },
      'shard ended',
    );
    this.setPhase('exited', undefined);
    this.deps.persist();
    this.settle();
  }

  // ------------------------------------------------------------ starting

  private async startAndWatch(command: StartShardCommand): Promise<StoredEnd | undefined> {
    if (this.stopping.signal.aborted) return STOPPED;
    const driver = this.deps.engines.driver(this.spec.engine);
    if (driver === undefined) return notOffered(this.spec);
    const launch = await planStart(driver, command, this.deps);
    if (isRefusal(launch)) return launch;
    const obstacle = await this.clearTheWay(driver, command, launch);
    if (this.stopping.signal.aborted) return STOPPED;
    if (this.leaving.signal.aborted) return undefined;
    if (obstacle !== undefined) return obstacle;
    // Once more, with what the last look at the GPUs showed.
    const fresh = await planStart(driver, command, this.deps);
    if (isRefusal(fresh)) return fresh;
    try {
      await this.spawn(fresh);
    } catch (error) {
      if (error instanceof SpawnError)
        return { verdict: error.verdict, message: errorChain(error).join(': ') };
      throw error;
    }
    return this.watch(driver);
  }

  /** Everything that must hold before the start; waits where waiting helps. */
  private async clearTheWay(
    driver: EngineDriver,
    command: StartShardCommand,
    launch: Launch,
  ): Promise<Refusal | undefined> {
    const { checks, launch: settings } = this.deps;
    const signal = AbortSignal.any([this.stopping.signal, this.leaving.signal]);
    const waiting: Waiting = (phase, what) => this.setPhase(phase, what);
    const disk = await diskHasRoom(launch.source, checks.stateDir, launch.env);
    if (disk !== undefined) return disk;
    const lack = await weightsAreWhole(launch.source);
    if (lack !== undefined) return lack;
    await turnToLoad(this.spec, launch, checks, waiting, signal, () => (this.loads = true));
    return (
      (await gpusHaveRoom(this.spec, checks, waiting, signal)) ??
      (await peersListen(driver, command, checks, waiting, signal)) ??
      (await portsAreFree(settings.bindHost, this.spec))
    );
  }

  private async spawn(launch: Launch): Promise<void> {
    this.setPhase('starting', undefined);
    const { file, args, env, secrets } = launch;
    const redact = this.deps.secrets.redactorFor(this.spec.shardId, secrets);
    this.log = new RunLog(this.directory, redact, this.deps);
    const cwd = join(this.directory, 'work');
    mkdirSync(cwd, { recursive: true, mode: 0o700 });
    // Written down before the start: an agent that dies in between finds the engine by its marker and knows of it.
    if (!this.deps.persist())
      throw new SpawnError('diskFull', 'the agent cannot write its state, so it starts nothing', undefined);
    this.process = await this.deps.supervisor.start(
      this.spec,
      { file, args, env: { ...env, ...secretVariables(env, secrets) }, cwd },
      this.log.openForRun(),
    );
    await this.log.follow();
    this.deps.warden.ensure();
    this.deps.logger.info(
      { shard: this.spec.shardId, generation: this.spec.generation, pid: this.process.identity.pid },
      'engine started',
    );
    this.deps.persist();
    this.deps.changed();
  }

  private async takeOver(identity: ProcessIdentity): Promise<StoredEnd | undefined> {
    const driver = this.deps.engines.driver(this.spec.engine);
    const secrets = secretsOf(this.deps.processes.environment(identity.pid));
    const redact = this.deps.secrets.redactorFor(this.spec.shardId, secrets);
    this.log = new RunLog(this.directory, redact, this.deps);
    try {
      await this.log.follow(true);
    } catch (error) {
      // A lost log file is no reason to touch an engine that serves.
      this.deps.logger.warn({ shard: this.spec.shardId, causes: errorChain(error) }, 'output cannot be read');
    }
    // The agent's file may offer less than before; what serves goes on serving until the control plane stops it.
    return driver === undefined
      ? this.outcome(await this.untilOver(new AbortController()))
      : this.watch(driver);
  }

  // ------------------------------------------------------------ watching

  private async watch(driver: EngineDriver): Promise<StoredEnd | undefined> {
    const over = new AbortController();
    const outcome = await Promise.race([this.untilOver(over), this.bringUpAndKeep(driver, over.signal)]);
    over.abort();
    return this.outcome(outcome);
  }

  private async untilOver(over: AbortController): Promise<Outcome> {
    const { process } = this;
    if (process === undefined) return { kind: 'stop' };
    const exit = process.exited.then((how): Outcome => ({ kind: 'exited', ...how }));
    const outcome = await Promise.race([
      exit,
      aborted<Outcome>(this.stopping.signal, { kind: 'stop' }),
      aborted<Outcome>(this.leaving.signal, { kind: 'left' }),
    ]);
    over.abort();
    return outcome;
  }

  /** Settles only with a failure that we must end the engine for. */
  private async bringUpAndKeep(driver: EngineDriver, over: AbortSignal): Promise<Outcome> {
    const target = this.target(driver);
    let failed: (failure: WatchFailure) => void = () => {};
    const strayed = new Promise<Outcome>((resolve) => {
      failed = (failure) => resolve({ kind: 'failed', failure });
    });
    const onPhase = (phase: ShardPhase, text?: string): void => {
      const stray = this.measure();
      if (stray !== undefined) failed(stray);
      if (!over.aborted) this.setPhase(phase, text);
    };
    return Promise.race([strayed, this.keepWatching(target, onPhase, over)]);
  }

  private async keepWatching(target: WatchTarget, onPhase: OnPhase, over: AbortSignal): Promise<Outcome> {
    while (!over.aborted) {
      try {
        const failure = this.ready ? undefined : await this.bringUp(target, onPhase, over);
        if (failure !== undefined) return { kind: 'failed', failure };
        await whileReady(target, this.deps, onPhase, over);
      } catch (error) {
        // A fault of ours while looking must not cost an engine its life.
        this.deps.logger.error({ shard: this.spec.shardId, causes: errorChain(error) }, 'watching failed');
        await pause(this.deps.clock, this.deps.timings.livenessIntervalMs, over);
      }
    }
    return new Promise<never>(() => {});
  }

  private async bringUp(
    target: WatchTarget,
    onPhase: OnPhase,
    over: AbortSignal,
  ): Promise<WatchFailure | undefined> {
    const { clock } = this.deps;
    const beganMs = clock.monotonicMs();
    const progress = new LoadProgress((line) => target.driver.readStep(line), beganMs);
    const take = (lines: readonly string[], unfinished: string): void => {
      const moved = progress.take(lines, unfinished, clock.monotonicMs());
      const step = progress.current;
      if (moved && step !== undefined) onPhase(step.phase, step.detail);
    };
    const unlisten = this.log?.listen(take);
    try {
      const failure = await untilReady(target, progress, this.deps, onPhase, over);
      if (failure !== undefined || over.aborted) return failure;
    } finally {
      unlisten?.();
    }
    this.ready = true;
    this.loadMs ??= Math.round(clock.monotonicMs() - beganMs);
    this.setPhase('ready', undefined);
    this.deps.persist();
    return undefined;
  }

  private target(driver: EngineDriver): WatchTarget {
    const { spec, deps, process } = this;
    const { bindHost } = deps.launch;
    const host = bindHost === '0.0.0.0' ? '127.0.0.1' : bindHost === '::' ? '::1' : bindHost;
    return {
      driver,
      rank: spec.rank,
      model: spec.model,
      address: { host, port: spec.ports.http },
      startTimeoutMs: spec.startTimeoutMs,
      process: { cpuTicks: () => process?.cpuTicks() },
      draining: () => this.draining,
    };
  }

  /** Keeps the largest memory seen, and sees to it that no device of others is used. */
  private measure(): WatchFailure | undefined {
    const picture = this.deps.gpus.picture();
    const pid = this.leaderPid;
    if (picture === undefined || pid === undefined) return undefined;
    const { checks, processes } = this.deps;
    const shared = new Set(checks.holders(this.spec.shardId).flatMap(({ gpuUuids }) => gpuUuids));
    const { peakBytes, stray } = gpuUsage(pid, this.spec.gpuUuids, shared, picture, processes);
    if (peakBytes > (this.memoryPeakBytes ?? 0)) this.memoryPeakBytes = peakBytes;
    if (stray === undefined) return undefined;
    return {
      verdict: 'crashed',
      message: `pid ${stray.pid} uses gpu ${stray.uuid}, which is not assigned to it`,
    };
  }

  // ------------------------------------------------------------ ending

  private async outcome(outcome: Outcome): Promise<StoredEnd | undefined> {
    switch (outcome.kind) {
      case 'left':
        return undefined;
      case 'stop':
        await this.endGroup(() => this.graceMs, 'stopping');
        return STOPPED;
      case 'failed':
        await this.endGroup(() => this.graceMs, outcome.failure.message);
        return withCause(outcome.failure, this.log?.lines() ?? []);
      case 'exited': {
        await this.endGroup(
          () => LEFTOVER_GRACE_MS,
          'the engine ended, its other processes are being stopped',
        );
        const { kind: _kind, ...exit } = outcome;
        const end = readVerdict(exit, this.log?.lines() ?? []);
        return { ...exit, ...(await withFullDisk(end, this.deps.checks.stateDir)) };
      }
    }
  }

  /** Returns only when no process of the engine lives: until then its GPUs and ports are not free. */
  private async endGroup(graceMs: () => number, text: string): Promise<void> {
    const { process } = this;
    if (process === undefined) return;
    this.ready = false;
    this.setPhase('stopping', text);
    let { survivors } = await process.end(graceMs);
    while (survivors.length > 0) {
      this.setPhase(
        'stopping',
        `processes ${survivors.join(', ')} survive KILL; they are stuck in the kernel`,
      );
      await pause(this.deps.clock, this.deps.timings.killSettleMs);
      ({ survivors } = await process.end(() => 0));
    }
    await this.log?.close();
    await gpusLetGo(this.spec, this.deps.checks, (what) => this.setPhase('stopping', what));
  }

  private setPhase(phase: ShardPhase, text: string | undefined): void {
    if (this.phase === phase && this.text === text) return;
    if (this.phase !== phase) this.phaseSinceMs = this.deps.clock.monotonicMs();
    this.phase = phase;
    this.text = text;
    this.deps.changed();
  }
}

function notOffered(spec: ShardSpec): Refusal {
  return { verdict: 'notAllowed', message: `engine ${spec.engine} is not offered by this agent's file` };
}
