/**
 * A digest of everything an engine process depends on. Two equal digests mean: the running process is what the catalog
 * wants, touch nothing. So it holds exactly what reaches the engine and nothing else: aliases, weights of traffic, priorities,
 * replica counts, the GPU type wanted of a new place and the order of keys in a file must never restart an engine.
 *
 * A restart of the model is written beside it rather than mixed in: an engine started after a restart that the store has forgotten,
 * as it was restored from an older copy, is told from one that is different, and is not loaded once more.
 */
import type { ModelSpec, Profile } from '../model-spec.js';

/** Digest of one profile of a model: 16 hex digits, then `.MS` with the wall time of the model's last restart if it had one. */
export function specDigest(model: ModelSpec, profile: Profile): string {
  const content = contentDigest(model, profile);
  return model.restartedWallMs === undefined ? content : `${content}.${model.restartedWallMs}`;
}

/** Placement asks of every device, and what it asks about stays the same object for as long as the catalog does. */
const contents = new WeakMap<Profile, { readonly model: ModelSpec; readonly digest: string }>();

/** Digest without the restart: of what the engine is, whenever it was started. */
export function contentDigest(model: ModelSpec, profile: Profile): string {
  const known = contents.get(profile);
  if (known?.model === model) return known.digest;
  const made = digest(
    canonical({
      model: model.name,
      source: model.source,
      profile: profile.name,
      engine: profile.engine,
      shards: profile.shards,
      gpus: profile.gpus,
      gpuMemoryBytes: profile.gpuMemoryBytes,
      args: profile.args,
      env: profile.env,
      maxConcurrency: profile.maxConcurrency,
    }),
  );
  contents.set(profile, { model, digest: made });
  return made;
}

/** Wall time of the restart of the model that an engine of this digest was started after, ms; 0 = none. */
export function restartOf(specDigest: string): number {
  return Number(specDigest.split('.')[1] ?? 0) || 0;
}

/** Whether two engines are of the same content, whenever they were started. */
export function sameContent(one: string, other: string): boolean {
  return one.split('.')[0] === other.split('.')[0];
}

/** Whether an engine is what is wanted: of the same content, and started after that restart or a later one. */
export function isUpToDate(running: string, wanted: string): boolean {
  return sameContent(running, wanted) && restartOf(running) >= restartOf(wanted);
}

/** JSON with sorted keys and without undefined: the same value always gives the same text. */
export function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join(',')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value) ?? 'null';
  const entries = Object.entries(value).filter(([, field]) => field !== undefined);
  entries.sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${entries.map(([key, field]) => `${JSON.stringify(key)}:${canonical(field)}`).join(',')}}`;
}

/**
 * Two 32-bit FNV-1a passes with different seeds. Not cryptographic, and need not be: the catalog is the operator's own, an
 * accidental clash of 64 bits is all there is to fear.
 */
function digest(text: string): string {
  return fnv1a(text, 0x811c9dc5) + fnv1a(text, 0x9747b28c);
}

function fnv1a(text: string, seed: number): string {
  let hash = seed;
  for (let index = 0; index < text.length; index += 1) {
    const unit = text.charCodeAt(index);
    hash = Math.imul(hash ^ (unit & 0xff), 0x01000193);
    hash = Math.imul(hash ^ (unit >>> 8), 0x01000193);
  }
  return (hash >>> 0).toString(16).padStart(8, '0');
}
