/** 32-bit hash of a short text (FNV-1a with a final mix); for spreading, never for secrets. */
export function hashText(text: string, seed = 0x811c9dc5): number {
  let hash = seed;
  for (let at = 0; at < text.length; at++) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193);
  return mix32(hash);
}

/** Spreads every bit of `value` over the whole word (murmur3's finaliser). */
export function mix32(value: number): number {
  let mixed = value >>> 0;
  mixed = Math.imul(mixed ^ (mixed >>> 16), 0x85ebca6b);
  mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35);
  return (mixed ^ (mixed >>> 16)) >>> 0;
}

/**
 * Rendezvous score of one endpoint for one key: the endpoint with the highest score owns the key. Losing an endpoint
 * moves only its own keys, and `weight` gives the share of keys exactly (-w / ln u).
 */
export function rendezvousScore(keyHash: number, endpointId: string, weight: number): number {
  const uniform = (mix32(hashText(endpointId) ^ keyHash) + 0.5) / 4_294_967_296;
  return -weight / Math.log(uniform);
}
