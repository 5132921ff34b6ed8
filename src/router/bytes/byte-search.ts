/** Index of a byte in `from`..`to`, `to` if it is not there. */
export function indexWithin(buffer: Buffer, byte: number, from: number, to: number): number {
  const behind = buffer[to];
  if (behind === undefined) return positionOf(buffer, byte, from);
  // Buffers have no search with an end, and what lies behind may be a whole slab of other bytes.
  buffer[to] = byte;
  const at = buffer.indexOf(byte, from);
  buffer[to] = behind;
  return at;
}

/** Index of a byte at or behind `from`, Infinity if there is none. */
export function positionOf(chunk: Buffer, byte: number, from: number): number {
  const at = chunk.indexOf(byte, from);
  return at < 0 ? Infinity : at;
}
