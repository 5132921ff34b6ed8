import { readdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';

/** Removes the directories below `parent` that were longest untouched, until at most `max` besides `kept` are left. */
export async function removeOldest(parent: string, kept: ReadonlySet<string>, max: number): Promise<void> {
  const entries = await readdir(parent, { withFileTypes: true }).catch(() => []);
  const paths = entries.filter((entry) => entry.isDirectory()).map(({ name }) => join(parent, name));
  const spare = paths.filter((path) => !kept.has(path));
  if (spare.length <= max) return;
  const dated = await Promise.all(spare.map(async (path) => ({ path, ms: (await stat(path)).mtimeMs })));
  dated.sort((a, b) => a.ms - b.ms);
  for (const { path } of dated.slice(0, dated.length - max)) await rm(path, { recursive: true, force: true });
}
