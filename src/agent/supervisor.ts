/**
 * Starts engines so that they outlive the agent: own session and process group, output to files instead of pipes
 * (a pipe dies with its reader and then kills or blocks the writer), a marker in the environment.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { closeSync } from 'node:fs';
import type { Verdict } from '../domain/cluster.js';
import type { Clock } from '../shared/clock.js';
import { errorCode } from './errno.js';
import type { AgentTimings } from './limits.js';
import { markerVariables } from './marker.js';
import { tracesOf, type EngineOwner, type EngineTraces } from './ownership.js';
import { ProcessGroup, type GroupEnd } from './process-group.js';
import type { ProcessTable } from './process-table.js';
import type { ShardSpec } from './shard-spec.js';
import { pause } from './wait.js';

export interface EngineCommand {
  /** Absolute path of the program. */
  readonly file: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly cwd: string;
}

/** How a leader ended. An adopted process is not our child, so the kernel tells us only that it is gone. */
export interface ProcessExit {
  readonly code?: number;
  readonly signal?: NodeJS.Signals;
}

/** The identity under which a later agent finds the process again. */
export interface ProcessIdentity {
  readonly pid: number;
  readonly startTicks: number;
  readonly bootId?: string;
}

export interface EngineProcess {
  readonly identity: ProcessIdentity;
  /** Settles when the leader has ended; the rest of its group may still live. */
  readonly exited: Promise<ProcessExit>;
  alive(): boolean;
  members(): readonly number[];
  /** Processor time of the whole engine, clock ticks; undefined where it cannot be read. */
  cpuTicks(): number | undefined;
  /** TERM, grace, KILL to everything that belongs to the engine. */
  end(graceMs: () => number): Promise<GroupEnd>;
  /** KILL to everything, at once and without waiting. */
  kill(): void;
}

/** A program that could not even be started. */
export class SpawnError extends Error {
  override readonly name = 'SpawnError';
  constructor(
    readonly verdict: Verdict,
    message: string,
    cause: unknown,
  ) {
    super(message, { cause });
  }
}

export interface SupervisorDeps {
  readonly owner: EngineOwner;
  readonly processes: ProcessTable;
  readonly clock: Clock;
  readonly timings: Pick<AgentTimings, 'processPollMs' | 'groupPollMs' | 'killSettleMs'>;
}

export class Supervisor {
  constructor(private readonly deps: SupervisorDeps) {}

  /** Starts a shard's engine; its output goes to `outputFd`, which is closed here. Throws `SpawnError`. */
  async start(spec: ShardSpec, command: EngineCommand, outputFd: number): Promise<EngineProcess> {
    let child: ChildProcess;
    try {
      child = spawn(command.file, [...command.args], {
        cwd: command.cwd,
        env: { ...command.env, ...markerVariables(this.deps.owner.agent, spec) },
        detached: true,
        shell: false,
        stdio: ['ignore', outputFd, outputFd],
      });
      await spawned(child);
    } catch (error) {
      throw spawnError(command.file, error);
    } finally {
      closeSync(outputFd);
    }
    // The engine must not keep an ending agent alive.
    child.unref();
    return this.child(spec, child);
  }

  /** Takes over a process started by an earlier agent; the caller has checked that it is ours. Watched until `leave`. */
  adopt(spec: ShardSpec, identity: ProcessIdentity, leave: AbortSignal): EngineProcess {
    const group = this.group(tracesOf(this.deps.owner, spec), identity);
    return engineProcess(identity, group, this.watch(group, leave));
  }

  /** Ends marked processes that belong to no shard. */
  endOrphan(
    orphan: { readonly engine: EngineTraces; readonly leader: ProcessIdentity },
    graceMs: number,
  ): Promise<GroupEnd> {
    return this.group(orphan.engine, orphan.leader).end(() => graceMs);
  }

  private child(spec: ShardSpec, child: ChildProcess): EngineProcess {
    const pid = child.pid ?? 0;
    const exited = new Promise<ProcessExit>((resolve) => {
      if (child.exitCode !== null || child.signalCode !== null)
        resolve(exitOf(child.exitCode, child.signalCode));
      else child.once('exit', (code, signal) => resolve(exitOf(code, signal)));
    });
    const bootId = this.deps.processes.bootId();
    const identity = {
      pid,
      startTicks: this.deps.processes.read(pid)?.startTicks ?? 0,
      ...(bootId === undefined ? {} : { bootId }),
    };
    return engineProcess(identity, this.group(tracesOf(this.deps.owner, spec), identity), exited);
  }

  private group(engine: EngineTraces, identity: ProcessIdentity): ProcessGroup {
    const { owner, processes, clock, timings } = this.deps;
    return new ProcessGroup(
      { leaderPid: identity.pid, leaderStartTicks: identity.startTicks, owner, engine },
      { processes, clock, pollMs: timings.groupPollMs, killSettleMs: timings.killSettleMs },
    );
  }

  /** Nobody tells us of the end of a process that is not our child, so it is looked at. */
  private async watch(group: ProcessGroup, leave: AbortSignal): Promise<ProcessExit> {
    const { clock, timings } = this.deps;
    while (group.leaderAlive()) {
      if (leave.aborted) return new Promise(() => {});
      await pause(clock, timings.processPollMs, leave);
    }
    return {};
  }
}

function engineProcess(
  identity: ProcessIdentity,
  group: ProcessGroup,
  exited: Promise<ProcessExit>,
): EngineProcess {
  return {
    identity,
    exited,
    alive: () => group.leaderAlive(),
    members: () => group.members(),
    cpuTicks: () => group.cpuTicks(),
    end: (graceMs) => group.end(graceMs),
    kill: () => group.kill(),
  };
}

function spawned(child: ChildProcess): Promise<void> {
  return new Promise((resolve, reject) => {
    child.once('spawn', resolve);
    child.once('error', reject);
  });
}

function exitOf(code: number | null, signal: NodeJS.Signals | null): ProcessExit {
  return { ...(code === null ? {} : { code }), ...(signal === null ? {} : { signal }) };
}

function spawnError(file: string, cause: unknown): SpawnError {
  const code = errorCode(cause) ?? '';
  switch (code) {
    case 'ENOENT':
      return new SpawnError('binaryMissing', `${file} does not exist`, cause);
    case 'EACCES':
    case 'ENOEXEC':
      return new SpawnError('binaryMissing', `${file} cannot be executed`, cause);
    case 'ENOSPC':
      return new SpawnError('diskFull', `no space left to start ${file}`, cause);
    case 'ENOMEM':
    case 'EAGAIN':
      return new SpawnError('outOfMemory', `the system could not start ${file}`, cause);
    default:
      return new SpawnError('unknown', `${file} could not be started`, cause);
  }
}
