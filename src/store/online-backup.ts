import { createHash } from 'node:crypto';
import { open, unlink, type FileHandle } from 'node:fs/promises';
import type { Readable } from 'node:stream';
import { copyState, type BackupStamp } from './copy-state.js';
import { StoreError } from './ports.js';
import { clearDatabase, stateFiles } from './state-files.js';

/** A copy of the state on its way to whoever asked. */
export interface StateCopy {
  readonly bytes: number;
  /** SHA-256 of all bytes, base64 as in an HTTP digest. */
  readonly sha256: string;
  /** Must be read to its end or destroyed: the copy's disk space is free only then. */
  readonly stream: Readable;
}

/**
 * A consistent copy of the state in `stateDir` while a server writes to it. It lies in the same directory for as long as
 * it is read, without a name: neither a crash nor a reader who left can leave it behind. One at a time.
 * Throws StoreError when it cannot be made, mostly for want of space.
 */
export async function openStateCopy(stateDir: string, stamp: BackupStamp): Promise<StateCopy> {
  const files = stateFiles(stateDir);
  const partial = `${files.database}.backup`;
  let handle: FileHandle | undefined;
  try {
    clearDatabase(partial);
    handle = await open(partial, 'wx+', 0o600);
    await copyState(files.database, partial, stamp);
    await unlink(partial);
    return {
      bytes: (await handle.stat()).size,
      sha256: await digestOf(handle),
      stream: handle.createReadStream({ start: 0 }),
    };
  } catch (error) {
    await handle?.close().catch(() => undefined);
    clearDatabase(partial);
    throw new StoreError('io_error', `the state in ${stateDir} cannot be copied`, { cause: error });
  }
}

async function digestOf(handle: FileHandle): Promise<string> {
  const hash = createHash('sha256');
  for await (const chunk of handle.createReadStream({ start: 0, autoClose: false })) {
    hash.update(chunk as Buffer);
  }
  return hash.digest('base64');
}
