/** An engine whose output lies on the disk that it filled cannot say so: its last words are what did not fit. */
import type { EndVerdict } from './engines/verdicts.js';
import { freeBytes } from './start-checks.js';

/** Less than this is a disk on which nothing can be written any more. */
const FULL_BYTES = 4 * 1024 * 1024;

/** The verdict `diskFull` instead of one that tells nothing, when no room is left where logs are written. */
export async function withFullDisk(end: EndVerdict, stateDir: string): Promise<EndVerdict> {
  if (end.verdict !== 'crashed' && end.verdict !== 'exitedCleanly') return end;
  const free = await freeBytes(stateDir);
  if (free === undefined || free >= FULL_BYTES) return end;
  return { verdict: 'diskFull', message: `${end.message}; no space is left in ${stateDir}` };
}
