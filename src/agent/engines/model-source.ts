/**
 * Turns a model's `source` into something an engine may be given: a real path under a model root, or a repository id.
 * Nothing in here blocks: model roots lie on file servers, and a file server that hangs must not stop heartbeats.
 */
import { access, readdir, realpath, stat } from 'node:fs/promises';
import { homedir } from 'node:os';
import { basename, dirname, isAbsolute, join, relative, resolve, sep } from 'node:path';
import { cutOff, filesWithContent, isWhole, missingIn, missingPart } from './checkpoint.js';
import type { ModelSource, Refusal } from './driver.js';

/** `name` or `owner/name`, with an optional `:quantisation` or `@revision`; nothing that a flag or a path could be. */
const REPOSITORY =
  /^([A-Za-z0-9][\w.-]{0,95}(?:\/[A-Za-z0-9][\w.-]{0,95})?(?::[\w.-]{1,64})?)(?:@([\w./-]{1,128}))?$/;

export async function resolveSource(
  source: string | undefined,
  modelRoots: readonly string[],
): Promise<ModelSource | Refusal> {
  if (source === undefined) return { kind: 'none' };
  if (source.startsWith('-')) return refused(`model source "${source}" looks like a flag`);
  if (isAbsolute(source) || source.startsWith('.')) return resolvePath(source, modelRoots);
  const local = await localPath(source, modelRoots);
  if (local !== undefined) return resolvePath(local, modelRoots);
  const match = REPOSITORY.exec(source);
  if (match === null || source.includes('..')) {
    return refused(`model source "${source}" is neither a path under a model root nor a repository id`);
  }
  if (source.endsWith('.gguf')) {
    return { verdict: 'missingWeights', message: `no file ${source} under ${rootsText(modelRoots)}` };
  }
  const [, id = source, revision] = match;
  return { kind: 'repository', id, ...(revision === undefined ? {} : { revision }) };
}

/** A repository laid out under a model root (`ROOT/owner/name`) is used instead of being fetched. */
function localPath(source: string, modelRoots: readonly string[]): Promise<string | undefined> {
  return firstExisting(modelRoots.map((root) => join(root, source)));
}

async function firstExisting(paths: readonly string[]): Promise<string | undefined> {
  for (const path of paths) if (await exists(path)) return path;
  return undefined;
}

async function exists(path: string): Promise<boolean> {
  try {
    await access(path);
    return true;
  } catch {
    return false;
  }
}

async function resolvePath(path: string, modelRoots: readonly string[]): Promise<ModelSource | Refusal> {
  const candidates = isAbsolute(path) ? [path] : modelRoots.map((root) => resolve(root, path));
  const found = await firstExisting(candidates);
  if (found === undefined) {
    return { verdict: 'missingWeights', message: `${path} does not exist under ${rootsText(modelRoots)}` };
  }
  // Links are followed before the check: a link under a root may lead anywhere.
  const real = await realpath(found);
  for (const root of modelRoots) if (await isInside(real, root)) return { kind: 'path', path: real };
  return refused(`${path} lies outside the agent's modelRoots (${rootsText(modelRoots)})`);
}

async function isInside(path: string, root: string): Promise<boolean> {
  if (!(await exists(root))) return false;
  const way = relative(await realpath(root), path);
  return way === '' || (!way.startsWith(`..${sep}`) && way !== '..' && !isAbsolute(way));
}

function rootsText(modelRoots: readonly string[]): string {
  return modelRoots.length === 0 ? 'any model root (none is configured)' : modelRoots.join(', ');
}

function refused(message: string): Refusal {
  return { verdict: 'notAllowed', message };
}

/** Directory of the Hugging Face cache for this environment. */
export function hubCacheDir(env: Readonly<Record<string, string | undefined>>): string {
  return env['HF_HUB_CACHE'] ?? join(env['HF_HOME'] ?? join(homedir(), '.cache', 'huggingface'), 'hub');
}

/**
 * True when the cache holds a whole snapshot. Partial files carry another name until they are complete, and files that were
 * not begun yet are missing.
 */
export async function inHubCache(cacheDir: string, id: string): Promise<boolean> {
  const repository = join(cacheDir, `models--${id.split(':', 1)[0]?.replaceAll('/', '--')}`);
  return (await hasSnapshot(repository)) && !(await hasPartialFiles(repository));
}

async function hasSnapshot(repository: string): Promise<boolean> {
  for (const snapshot of await list(join(repository, 'snapshots')))
    if (await isWhole(join(repository, 'snapshots', snapshot))) return true;
  return false;
}

async function hasPartialFiles(repository: string): Promise<boolean> {
  return (await list(join(repository, 'blobs'))).some((blob) => blob.endsWith('.incomplete'));
}

/** Sources this node already has: what lies under the model roots, and what the cache holds whole. Bounded by `max`. */
export async function weightsPresent(
  modelRoots: readonly string[],
  cacheDir: string,
  max: number,
): Promise<string[]> {
  const found: string[] = [];
  for (const root of modelRoots) await collect(root, '', 0, found, max);
  for (const entry of await list(cacheDir)) {
    if (found.length >= max) break;
    if (!entry.startsWith('models--')) continue;
    const id = entry.slice('models--'.length).replaceAll('--', '/');
    if (await inHubCache(cacheDir, id)) found.push(id);
  }
  return [...new Set(found)].slice(0, max);
}

/** Roots are laid out `file.gguf`, `name/`, or `owner/name/`; deeper is an engine's own business. */
const ROOT_DEPTH = 3;

async function collect(
  root: string,
  below: string,
  depth: number,
  found: string[],
  max: number,
): Promise<void> {
  const directory = join(root, below);
  const entries = await list(directory);
  if (depth > 0 && entries.includes('config.json') && (await isWhole(directory)))
    found.push(below, directory);
  for (const entry of entries) {
    if (found.length >= max) return;
    const path = below === '' ? entry : `${below}/${entry}`;
    if (entry.endsWith('.gguf')) {
      if ((await missingFile(join(root, path))) === undefined) found.push(path, join(root, path));
    } else if (depth < ROOT_DEPTH && !entry.startsWith('.') && (await isDirectory(join(root, path))))
      await collect(root, path, depth + 1, found, max);
  }
}

/** What a local source lacks of being whole, by name; undefined when nothing. */
export async function lackOf(path: string): Promise<string | undefined> {
  const isFile = !(await isDirectory(path));
  const missing = isFile ? await missingFile(path) : await missingIn(path);
  if (missing !== undefined) return missing;
  const directory = isFile ? dirname(path) : path;
  const cut = await cutOff(directory, isFile ? [basename(path)] : await filesWithContent(path));
  return cut === undefined ? undefined : `the end of ${cut}`;
}

async function missingFile(path: string): Promise<string | undefined> {
  const present = await filesWithContent(dirname(path));
  const name = basename(path);
  return present.has(name) ? missingPart(name, present) : `the content of ${name}`;
}

async function isDirectory(path: string): Promise<boolean> {
  try {
    return (await stat(path)).isDirectory();
  } catch {
    return false;
  }
}

async function list(path: string): Promise<string[]> {
  try {
    return await readdir(path);
  } catch {
    return [];
  }
}
