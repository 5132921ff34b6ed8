const FNV_PRIME = 0x01000193;

/**
 * A 53-bit hash as a plain number: two 32-bit lanes of FNV-1a over the same bytes, folded.
 * Plain numbers make cheap map keys; 53 bits keep chains of a few million blocks apart.
 */
export function hashBytes(bytes: Uint8Array, start: number, end: number, seed: number): number {
  let a = (0x811c9dc5 ^ seed) >>> 0;
  let b = (0x9747b28c ^ (seed / 0x1_0000_0000) ^ Math.imul(seed, 0x5bd1e995)) >>> 0;
  for (let i = start; i < end; i++) {
    const byte = bytes[i] ?? 0;
    a = Math.imul(a ^ byte, FNV_PRIME);
    b = Math.imul(b ^ byte, 0x5bd1e995);
    b ^= b >>> 15;
  }
  return (finalize(a) & 0x1f_ffff) * 0x1_0000_0000 + finalize(b);
}

/** Mixes two numbers to 32 well-spread bits. */
export function mix(a: number, b: number): number {
  return finalize(Math.imul(a ^ (a >>> 16), 0x85ebca6b) ^ Math.imul(b + 0x9e3779b9, 0xc2b2ae35));
}

function finalize(value: number): number {
  let h = value;
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return (h ^ (h >>> 16)) >>> 0;
}
