/**
 * What the kernel knows about processes, read from /proc. A pid alone identifies nothing, since pids are reused;
 * pid and start time within one boot do, and the marker in the environment says whose it is.
 */
import { readFileSync, readdirSync, readlinkSync } from 'node:fs';
import { errorCode } from './errno.js';

export interface ProcessFacts {
  readonly pid: number;
  readonly parentPid: number;
  readonly groupId: number;
  readonly sessionId: number;
  /** Ended with all its threads, but not yet reaped by its parent: holds nothing any more. */
  readonly zombie: boolean;
  /** Start time in clock ticks since boot; with the pid it is unique within a boot. */
  readonly startTicks: number;
  /** Processor time used so far, clock ticks: tells a busy process from a stuck one. */
  readonly cpuTicks: number;
}

export interface ProcessTable {
  /** False where the system cannot tell enough for adoption. */
  readonly canIdentify: boolean;
  read(pid: number): ProcessFacts | undefined;
  list(): ProcessFacts[];
  /** Pids of a process's children, zombies included. */
  childrenOf(pid: number): number[];
  /** The environment a process was started with; undefined when it is gone or not ours to read. */
  environment(pid: number): ReadonlyMap<string, string> | undefined;
  /** The file its standard output or standard error goes to; undefined for a pipe, a terminal, or a process not ours to look at. */
  output(pid: number): string | undefined;
  /** Program name as the kernel shows it. */
  name(pid: number): string | undefined;
  /** Changes with each boot; undefined when unknown. */
  bootId(): string | undefined;
}

/**
 * Parses `/proc/PID/stat`. The name in brackets may hold blanks and brackets itself (`(sd) (x)`), so fields are counted
 * from the last closing one. The kernel shows a process as a zombie once its first thread has ended: one that was killed
 * with another thread stuck in a driver looks ended and still holds all its memory, so threads are counted.
 */
export function parseStat(text: string): ProcessFacts | undefined {
  const end = text.lastIndexOf(')');
  const pid = Number.parseInt(text, 10);
  if (end < 0 || !Number.isInteger(pid)) return undefined;
  const fields = text.slice(end + 2).split(' ');
  const number = (index: number): number => Number(fields[index] ?? Number.NaN);
  const facts = {
    pid,
    parentPid: number(1),
    groupId: number(2),
    sessionId: number(3),
    zombie: fields[0] === 'X' || (fields[0] === 'Z' && !(number(17) > 1)),
    startTicks: number(19),
    cpuTicks: number(11) + number(12),
  };
  return Number.isFinite(facts.startTicks) ? facts : undefined;
}

/** Splits the NUL-separated block of `/proc/PID/environ`. */
export function parseEnvironment(block: string): Map<string, string> {
  const variables = new Map<string, string>();
  for (const entry of block.split('\0')) {
    const at = entry.indexOf('=');
    if (at > 0) variables.set(entry.slice(0, at), entry.slice(at + 1));
  }
  return variables;
}

class LinuxProcessTable implements ProcessTable {
  readonly canIdentify = true;

  read(pid: number): ProcessFacts | undefined {
    const text = readText(`/proc/${pid}/stat`);
    return text === undefined ? undefined : parseStat(text);
  }

  list(): ProcessFacts[] {
    return readdirSync('/proc')
      .filter((name) => /^\d+$/.test(name))
      .map((name) => this.read(Number(name)))
      .filter((facts) => facts !== undefined);
  }

  childrenOf(pid: number): number[] {
    const lists = entries(`/proc/${pid}/task`).map((thread) =>
      readText(`/proc/${pid}/task/${thread}/children`),
    );
    // Not every kernel lists them.
    if (lists.every((text) => text === undefined))
      return this.list()
        .filter(({ parentPid }) => parentPid === pid)
        .map((facts) => facts.pid);
    return lists.flatMap((text) => text?.match(/\d+/g)?.map(Number) ?? []);
  }

  environment(pid: number): ReadonlyMap<string, string> | undefined {
    const text =
      readText(`/proc/${pid}/environ`) ?? this.ofOtherThread(pid, (path) => readText(`${path}/environ`));
    return text === undefined ? undefined : parseEnvironment(text);
  }

  output(pid: number): string | undefined {
    return outputOf(`/proc/${pid}`) ?? this.ofOtherThread(pid, outputOf);
  }

  name(pid: number): string | undefined {
    return readText(`/proc/${pid}/comm`)?.trim();
  }

  bootId(): string | undefined {
    return readText('/proc/sys/kernel/random/boot_id')?.trim();
  }

  /** What a process is asked for is told by its first thread; when that has ended alone, another knows. */
  private ofOtherThread<T>(pid: number, ask: (path: string) => T | undefined): T | undefined {
    const stat = readText(`/proc/${pid}/stat`);
    if (stat === undefined || !isLeaderless(stat)) return undefined;
    const thread = entries(`/proc/${pid}/task`).find((name) => name !== String(pid));
    return thread === undefined ? undefined : ask(`/proc/${pid}/task/${thread}`);
  }
}

/** Systems without /proc: processes can be asked whether they live, no more; engines of an earlier agent are not adopted. */
class BasicProcessTable implements ProcessTable {
  readonly canIdentify = false;

  read(pid: number): ProcessFacts | undefined {
    if (!signalProcess(pid, 0)) return undefined;
    return { pid, parentPid: 0, groupId: pid, sessionId: pid, zombie: false, startTicks: 0, cpuTicks: 0 };
  }
  list(): ProcessFacts[] {
    return [];
  }
  childrenOf(): number[] {
    return [];
  }
  environment(): undefined {
    return undefined;
  }
  output(): undefined {
    return undefined;
  }
  name(): undefined {
    return undefined;
  }
  bootId(): undefined {
    return undefined;
  }
}

export function systemProcessTable(platform: string = process.platform): ProcessTable {
  return platform === 'linux' ? new LinuxProcessTable() : new BasicProcessTable();
}

/** Sends a signal; false when there is nobody (any more) to take it. A negative pid means the whole group. */
export function signalProcess(pid: number, signal: NodeJS.Signals | 0): boolean {
  // 0, 1 and -1 would mean "my own group", init and "everybody I may signal".
  if (!Number.isSafeInteger(pid) || Math.abs(pid) <= 1) throw new RangeError(`refusing to signal pid ${pid}`);
  try {
    process.kill(pid, signal);
    return true;
  } catch (error) {
    // EPERM: it lives, but belongs to somebody else now.
    if (errorCode(error) === 'ESRCH' || errorCode(error) === 'EPERM') return false;
    throw error;
  }
}

/** The first thread has ended, others run on. */
function isLeaderless(stat: string): boolean {
  return stat.charAt(stat.lastIndexOf(')') + 2) === 'Z' && parseStat(stat)?.zombie === false;
}

/** Engines close one of the two or send it elsewhere more often than both. */
function outputOf(process: string): string | undefined {
  for (const fd of [1, 2]) {
    const path = linkTarget(`${process}/fd/${fd}`);
    if (path?.startsWith('/') === true && !path.startsWith('/dev/')) return path.replace(/ \(deleted\)$/, '');
  }
  return undefined;
}

function entries(path: string): string[] {
  try {
    return readdirSync(path);
  } catch {
    return [];
  }
}

function linkTarget(path: string): string | undefined {
  try {
    return readlinkSync(path);
  } catch {
    return undefined;
  }
}

/** A process may end between any two reads; that is an answer, not an error. */
function readText(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return undefined;
  }
}
