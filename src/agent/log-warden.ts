/**
 * Keeps engines' log files bounded while no agent does. Engines write to files by themselves and depend on nobody: a
 * reader of a pipe that dies takes its engine with it (SIGPIPE), one that hangs makes it hang. The warden only looks at
 * sizes, so nothing happens to an engine when the warden is killed; files then grow until the next agent starts another.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Clock } from '../shared/clock.js';
import type { Logger } from '../shared/logger.js';
import { cutLogFile } from './log-cut.js';
import { ownershipOf, type EngineOwner } from './ownership.js';
import { signalProcess, type ProcessTable } from './process-table.js';
import { RunLog } from './run-log.js';
import { lockHolder } from './state-lock.js';
import { pause } from './wait.js';

export const WARDEN_LOCK = 'log-warden.lock';

/** The agent cuts at the limit and the warden at twice that: who is late is helped, and two never cut at once. */
const WARDEN_SHARE = 2;

/** One look at all shards: cuts what outgrew its bound. False when the directory is gone, and with it the task. */
export async function tendLogs(shardsDir: string, fileMaxBytes: number): Promise<boolean> {
  let shards: string[];
  try {
    shards = readdirSync(shardsDir);
  } catch {
    return false;
  }
  for (const shard of shards) {
    const path = RunLog.currentFile(join(shardsDir, shard));
    try {
      if ((await stat(path)).size > fileMaxBytes * WARDEN_SHARE) await cutLogFile(path, fileMaxBytes);
    } catch {
      // Removed between two looks, or a full disk: the next look tries again, and there is nobody to tell.
    }
  }
  return true;
}

/** True while anybody needs the warden: the agent itself, or an engine that it left. */
export function wardenIsNeeded(stateDir: string, owner: EngineOwner, processes: ProcessTable): boolean {
  if (lockHolder(stateDir, processes) !== undefined) return true;
  return processes
    .list()
    .some(({ pid, zombie }) => !zombie && ownershipOf(owner, processes, pid) !== undefined);
}

export interface LogWardenDeps {
  readonly stateDir: string;
  readonly agent: string;
  readonly processes: ProcessTable;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly timings: { readonly wardenCheckMs: number; readonly logFileMaxBytes: number };
  /** True while engines run. */
  readonly wanted: () => boolean;
}

/** The compiled program: beside us, or in `dist` when the sources run by themselves. */
function wardenEntry(): string | undefined {
  return ['./log-warden-main.js', '../../dist/agent/log-warden-main.js']
    .map((path) => fileURLToPath(new URL(path, import.meta.url)))
    .find((path) => existsSync(path));
}

/** Sees to it that a warden runs while engines do, whoever started it. */
export class LogWarden {
  private child: ChildProcess | undefined;
  private readonly ended = new AbortController();

  constructor(private readonly deps: LogWardenDeps) {}

  start(): void {
    void this.run();
  }

  /** To be called when an engine was started; harmless when repeated. */
  ensure(): void {
    const { stateDir, agent, processes, logger, timings } = this.deps;
    // Without /proc the warden could not tell when its work is over.
    if (this.ended.signal.aborted || !processes.canIdentify || this.isRunning()) return;
    const entry = wardenEntry();
    if (entry === undefined) return logger.debug({}, 'the log warden is not built');
    // Its memory is all it costs.
    const args = ['--max-old-space-size=32', entry, stateDir, agent, String(timings.logFileMaxBytes)];
    const child = spawn(process.execPath, args, { cwd: '/', env: {}, detached: true, stdio: 'ignore' });
    child.once('error', (error) => logger.warn({ reason: error.message }, 'no log warden can be started'));
    child.unref();
    this.child = child;
  }

  /** The agent ends; `engines` = some serve on, and their files need the warden. */
  close(engines: boolean): void {
    this.ended.abort();
    if (engines) return;
    if (this.child?.exitCode === null && this.child.signalCode === null) this.child.kill('SIGTERM');
    const holder = lockHolder(this.deps.stateDir, this.deps.processes, WARDEN_LOCK);
    if (holder !== undefined) signalProcess(holder, 'SIGTERM');
  }

  private async run(): Promise<void> {
    const { clock, timings, wanted } = this.deps;
    while (!this.ended.signal.aborted) {
      if (wanted()) this.ensure();
      await pause(clock, timings.wardenCheckMs, this.ended.signal);
    }
  }

  private isRunning(): boolean {
    if (this.child?.pid !== undefined && this.child.exitCode === null && this.child.signalCode === null)
      return true;
    return lockHolder(this.deps.stateDir, this.deps.processes, WARDEN_LOCK) !== undefined;
  }
}
