/**
 * The wait calls that Node lacks: it waits for the children it started itself and for nobody else, so orphans that come
 * to it from its engines' families stay zombies. The C library is called through koffi, which is loaded only where
 * somebody has to reap, and which need not be there.
 */

export interface ChildWaits {
  /** True when a child has ended and nobody has waited for it yet. */
  anyEnded(): boolean;
  /** The same of one child; false for a process that is no child of ours. */
  hasEnded(pid: number): boolean;
  /** Waits for a child that has ended, whereupon the kernel forgets it. */
  reap(pid: number): void;
  /** Orphans below this process become its children from now on, as those of process 1 do; false where that is refused. */
  takeOrphans(): boolean;
}

// linux/wait.h and linux/prctl.h; the same on x64 and arm64.
const P_ALL = 0;
const P_PID = 1;
const WNOHANG = 0x1;
const WEXITED = 0x4;
/** Looks and leaves the child as it is. */
const WNOWAIT = 0x0100_0000;
const PR_SET_CHILD_SUBREAPER = 36;
/** A siginfo_t, and where in it the pid is on 64-bit systems. */
const SIGINFO_BYTES = 128;
const SIGINFO_PID = 16;

/** Throws where the C library cannot be called. */
export async function systemChildWaits(): Promise<ChildWaits> {
  if (process.platform !== 'linux' || !['x64', 'arm64'].includes(process.arch))
    throw new Error(`not known how on ${process.platform} ${process.arch}`);
  const { load } = await import('koffi');
  // The library that Node itself runs on, whichever it is: glibc and musl name these calls alike.
  const libc = load(null);
  const waitid = libc.func('int waitid(int type, unsigned int id, void *info, int options)');
  const prctl = libc.func(
    'int prctl(int option, unsigned long a, unsigned long b, unsigned long c, unsigned long d)',
  );
  const info = Buffer.alloc(SIGINFO_BYTES);
  /** The child that was found; 0 = none that has ended, or none at all. */
  const wait = (type: number, id: number, how: number): number => {
    info.fill(0);
    return waitid(type, id, info, WEXITED | WNOHANG | how) === 0 ? info.readInt32LE(SIGINFO_PID) : 0;
  };
  return {
    anyEnded: () => wait(P_ALL, 0, WNOWAIT) !== 0,
    hasEnded: (pid) => wait(P_PID, pid, WNOWAIT) === pid,
    reap: (pid) => void wait(P_PID, pid, 0),
    takeOrphans: () => prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) === 0,
  };
}
