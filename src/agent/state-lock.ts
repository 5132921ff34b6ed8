/** Two agents on one state directory would both think the engines theirs; the second is refused. */
import { closeSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { OperatorError } from '../shared/errors.js';
import { errorCode } from './errno.js';
import type { ProcessTable } from './process-table.js';

interface Holder {
  readonly pid: number;
  readonly startTicks: number;
  readonly bootId?: string;
}

const AGENT_LOCK = 'agent.lock';

export class StateLock {
  private constructor(private readonly path: string) {}

  /** Throws an OperatorError that names the holder. A lock whose holder is dead is taken over. */
  static take(stateDir: string, processes: ProcessTable, name = AGENT_LOCK): StateLock {
    const path = join(stateDir, name);
    const bootId = processes.bootId();
    const me: Holder = {
      pid: process.pid,
      startTicks: processes.read(process.pid)?.startTicks ?? 0,
      ...(bootId === undefined ? {} : { bootId }),
    };
    for (;;) {
      try {
        const fd = openSync(path, 'wx', 0o600);
        writeFileSync(fd, JSON.stringify(me));
        closeSync(fd);
        return new StateLock(path);
      } catch (error) {
        if (errorCode(error) !== 'EEXIST') throw error;
      }
      const holder = readHolder(path);
      if (holder !== undefined && isAlive(holder, processes, bootId)) {
        throw new OperatorError('conflict', `another agent (pid ${holder.pid}) uses ${stateDir}`, {
          hint: 'stop it, or give this one its own --state-dir',
        });
      }
      rmSync(path, { force: true });
    }
  }

  release(): void {
    rmSync(this.path, { force: true });
  }
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
