/**
 * When a changed file is whole: editors truncate it before they write, replace it by renaming, or save three times in a row, and
 * mounted volumes swap a link. Pure: somebody else looks at the file and at the clock.
 */

/** Unchanged for this long, a file is taken to be written to its end, ms. */
export const SETTLE_MS = 200;
/** A file that is missing or empty for longer than this is meant to be so, ms. */
export const ABSENT_MS = 2_000;

/** What to do after a look. */
export type Settled =
  /** It is what was taken last. */
  | { readonly kind: 'same' }
  /** It may still be being written: look again after so many ms. */
  | { readonly kind: 'wait'; readonly ms: number }
  /** Take it now. */
  | { readonly kind: 'take' };

export class FileSettle {
  private seen: { readonly content: string | undefined; readonly sinceMs: number } | undefined;

  /** @param taken the content that is in use; undefined for a file that is missing */
  constructor(private taken: string | undefined) {}

  /** Somebody read the file by himself: what was in it then is what a later look is compared with. */
  readElsewhere(content: string | undefined): void {
    this.taken = content;
    this.seen = undefined;
  }

  look(content: string | undefined, nowMs: number): Settled {
    if (content === this.taken) {
      this.seen = undefined;
      return { kind: 'same' };
    }
    if (this.seen === undefined || this.seen.content !== content) this.seen = { content, sinceMs: nowMs };
    const empty = content === undefined || content.trim() === '';
    const leftMs = this.seen.sinceMs + (empty ? ABSENT_MS : SETTLE_MS) - nowMs;
    if (leftMs > 0) return { kind: 'wait', ms: leftMs };
    this.taken = content;
    this.seen = undefined;
    return { kind: 'take' };
  }
}
