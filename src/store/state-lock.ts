import { writeFileSync } from 'node:fs';
import { KernelLock } from '../shared/kernel-lock.js';
import { StoreError } from './ports.js';
import { storeError } from './sqlite-database.js';
import { describeOwner, type StateFiles } from './state-files.js';

/**
 * Holds the state directory for one process. The lock is on a file of its own: one on the database itself would be
 * dropped by any other close of that file in this process, as POSIX has it.
 */
export class StateLock {
  private constructor(private readonly lock: KernelLock) {}

  /** Takes the lock or throws `locked`. `sinceText` is shown to whoever is refused. */
  static take(files: StateFiles, sinceText: string): StateLock {
    const lock = lockOf(files);
    if (lock === undefined) {
      throw new StoreError(
        'locked',
        `another server uses the state directory ${files.dir}${describeOwner(files)}; ` +
          'stop it, or give this one its own stateDir',
      );
    }
    nameOwner(files, sinceText);
    return new StateLock(lock);
  }

  release(): void {
    this.lock.release();
  }
}

function lockOf(files: StateFiles): KernelLock | undefined {
  try {
    return KernelLock.take(files.lock);
  } catch (error) {
    const failure = storeError(error, files);
    if (failure.code === 'disk_full') throw failure;
    throw new StoreError('io_error', `the lock in ${files.dir} cannot be taken`, { cause: error });
  }
}

/** Only for people: who holds the lock is the kernel's word, with or without a file that says so. */
function nameOwner(files: StateFiles, sinceText: string): void {
  try {
    const owner = `${JSON.stringify({ pid: process.pid, since: sinceText })}\n`;
    writeFileSync(files.owner, owner, { mode: 0o600 });
  } catch {
    // The next to be refused is not told by whom; the first write of the state says what is wrong with the disk.
  }
}
