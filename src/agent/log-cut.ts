/** Empties a log file under the engine that holds it open. */
import { open, rename, rm, truncate, type FileHandle } from 'node:fs/promises';

const COPY_BYTES = 256 * 1024;

/** Where the end of a cut file is kept. */
export function cutFile(path: string): string {
  return `${path}.old`;
}

/**
 * Keeps the last `keepBytes` of the file as `.old` and empties it. It is not renamed, because its writer would follow
 * it: with O_APPEND the next write lands at the new end. What is written between the copy and the cut is lost.
 */
export async function cutLogFile(path: string, keepBytes: number): Promise<void> {
  const temporary = `${cutFile(path)}.tmp`;
  const from = await open(path, 'r');
  try {
    const before = (await from.stat()).size;
    await copyEnd(from, before, keepBytes, temporary);
    // Somebody else cut it meanwhile, and has the end.
    if ((await from.stat()).size < before) return await rm(temporary, { force: true });
    await rename(temporary, cutFile(path));
  } catch (error) {
    // A full disk is the very case in which emptying matters more than keeping.
    await rm(temporary, { force: true });
    await truncate(path, 0);
    throw error;
  } finally {
    await from.close();
  }
  await truncate(path, 0);
}

async function copyEnd(from: FileHandle, size: number, keepBytes: number, target: string): Promise<void> {
  const to = await open(target, 'w', 0o600);
  try {
    const buffer = Buffer.allocUnsafe(COPY_BYTES);
    for (let at = Math.max(0, size - keepBytes); at < size;) {
      const { bytesRead } = await from.read(buffer, 0, Math.min(COPY_BYTES, size - at), at);
      if (bytesRead === 0) return;
      await to.write(buffer, 0, bytesRead);
      at += bytesRead;
    }
  } finally {
    await to.close();
  }
}
