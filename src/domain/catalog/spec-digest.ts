/**
 * A digest of everything an engine process depends on. Two equal digests mean: the running process is what the catalog
 * wants, touch nothing. So it holds exactly what reaches the engine and nothing else: aliases, weights of traffic, priorities,
 * replica counts, the GPU type wanted of a new place and the order of keys in a file must never restart an engine.
 */
import type { ModelSpec, Profile } from '../model-spec.js';

/** Digest of one profile of a model, 16 hex digits. */
export function specDigest(model: ModelSpec, profile: Profile): string {
  return digest(
    canonical({
      model: model.name,
      source: model.source,
      restartedWallMs: model.restartedWallMs,
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
