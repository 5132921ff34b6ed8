/**
 * Two agents on one state directory would both think the engines theirs; the second is refused. Who holds it is the
 * kernel's word, which also counts between two containers that share a volume; the lock file names him, and is all there
 * is where the file system knows no locks.
 */
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { OperatorError } from '../shared/errors.js';
import { KernelLock } from '../shared/kernel-lock.js';
import { errorCode } from './errno.js';
import type { ProcessTable } from './process-table.js';

interface Holder {
  readonly pid: number;
  readonly startTicks: number;
  readonly bootId?: string;
}

const AGENT_LOCK = 'agent.lock';

export class StateLock {
  private constructor(
    private readonly path: string,
    private readonly kernel: KernelLock | undefined,
  ) {}

  /** Throws an OperatorError that names the holder. A lock whose holder is dead is taken over. */
  static take(stateDir: string, processes: ProcessTable, name = AGENT_LOCK): StateLock {
    const path = join(stateDir, name);
    const bootId = processes.bootId();
    const me: Holder = {
      pid: process.pid,
      startTicks: processes.read(process.pid)?.startTicks ?? 0,
      ...(bootId === undefined ? {} : { bootId }),
    };
    const kernel = kernelLock(heldFile(path));
    const holder = readHolder(path);
    const seen = holder !== undefined && isAlive(holder, processes, bootId);
    if (kernel === 'taken') throw taken(stateDir, seen ? `pid ${holder.pid}` : 'of another container');
    try {
      claim(path, me, stateDir, processes);
    } catch (error) {
      kernel?.release();
      throw error;
    }
    return new StateLock(path, kernel);
  }

  /** Throws as `take` would, and leaves nothing behind: whoever looks may be another user than the agent. */
  static look(stateDir: string, processes: ProcessTable): void {
    const holder = lockHolder(stateDir, processes);
    if (holder !== undefined) throw taken(stateDir, `pid ${holder}`);
    const path = heldFile(join(stateDir, AGENT_LOCK));
    const kernel = existsSync(path) ? kernelLock(path) : undefined;
    if (kernel === 'taken') throw taken(stateDir, 'of another container');
    kernel?.release();
  }

  release(): void {
    rmSync(this.path, { force: true });
    this.kernel?.release();
  }
}

const heldFile = (path: string): string => `${path}.held`;

function kernelLock(path: string): KernelLock | 'taken' | undefined {
  try {
    return KernelLock.take(path) ?? 'taken';
  } catch {
    return undefined;
  }
}

/** The file alone: what an earlier version, or a file system without locks, has to go by. */
function claim(path: string, me: Holder, stateDir: string, processes: ProcessTable): void {
  for (;;) {
    try {
      writeFileSync(path, JSON.stringify(me), { mode: 0o600, flag: 'wx' });
      return;
    } catch (error) {
      if (errorCode(error) !== 'EEXIST') throw error;
    }
    const holder = readHolder(path);
    if (holder !== undefined && isAlive(holder, processes, me.bootId))
      throw taken(stateDir, `pid ${holder.pid}`);
    rmSync(path, { force: true });
  }
}

function taken(stateDir: string, by: string): OperatorError {
  return new OperatorError('conflict', `another agent (${by}) uses ${stateDir}`, {
    hint: 'stop it, or give this one its own --state-dir',
  });
}

/** Pid of the living process that holds a lock of this directory. */
export function lockHolder(stateDir: string, processes: ProcessTable, name = AGENT_LOCK): number | undefined {
  const holder = readHolder(join(stateDir, name));
  return holder !== undefined && isAlive(holder, processes, processes.bootId()) ? holder.pid : undefined;
}

function isAlive(holder: Holder, processes: ProcessTable, bootId: string | undefined): boolean {
  if (holder.bootId !== bootId) return false;
  const facts = processes.read(holder.pid);
  return facts !== undefined && !facts.zombie && facts.startTicks === holder.startTicks;
}

function readHolder(path: string): Holder | undefined {
  try {
    const value = JSON.parse(readFileSync(path, 'utf8')) as Partial<Holder>;
    return Number.isSafeInteger(value.pid) ? (value as Holder) : undefined;
  } catch {
    return undefined;
  }
}
