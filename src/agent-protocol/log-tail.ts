/** Largest log tail of one shard, bytes. */
export const LOG_TAIL_LIMIT_BYTES = 16 * 1024;

const CUT_MARK = '[…]\n';
const encoder = new TextEncoder();
const decoder = new TextDecoder('utf-8', { fatal: false });

/** The last `limitBytes` of a log as text. Bytes that are no UTF-8 become the replacement character; a cut is marked. */
export function tailText(bytes: Uint8Array, limitBytes: number): string {
  if (bytes.length <= limitBytes) return decoder.decode(bytes);
  return CUT_MARK + decoder.decode(bytes.subarray(characterStart(bytes, bytes.length - limitBytes)));
}

/** The end of a text as bytes, at most `limitBytes` with the mark of the cut: what an error says stands at the end. */
export function tailBytes(text: string, limitBytes: number): Uint8Array {
  const bytes = encoder.encode(text);
  if (bytes.length <= limitBytes) return bytes;
  const mark = encoder.encode(CUT_MARK);
  if (limitBytes <= mark.length) return new Uint8Array();
  const kept = bytes.subarray(characterStart(bytes, bytes.length - (limitBytes - mark.length)));
  return Buffer.concat([mark, kept]);
}

/** First byte from `at` on that begins a character, so that a cut never makes half of one. */
function characterStart(bytes: Uint8Array, at: number): number {
  let start = at;
  while (start < bytes.length && start < at + 4 && ((bytes[start] ?? 0) & 0xc0) === 0x80) start++;
  return start;
}
