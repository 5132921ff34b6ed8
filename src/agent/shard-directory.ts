import { join } from 'node:path';

/** One directory per shard; ids come from elsewhere, so nothing in them may act as a path. */
export function shardDirectory(shardsDir: string, shardId: string): string {
  return join(shardsDir, encodeURIComponent(shardId).replace(/^\.+/, '_').slice(0, 200));
}
