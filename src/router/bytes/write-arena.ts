/** Size of one arena block: large enough that blocks change rarely, small enough to stay in the L2 cache. */
const BLOCK_BYTES = 256 * 1024;

/** Lengths up to this have their view of the next bytes made once: an event is a few hundred bytes long. */
const VIEWS_MAX_BYTES = 2 * 1024;

/**
 * Short-lived memory for bytes that are handed to `socket.write`. When the kernel takes them at once (the normal
 * case) the same memory serves the next write; only what is still queued is left alone. Without it each relayed
 * event allocates outside V8's heap, and under stream load V8 answers with full collections.
 *
 *     const slice = arena.take(length); …fill…; socket.write(slice); if (socket.writableLength !== 0) arena.keep(length);
 */
export class WriteArena {
  #block = Buffer.allocUnsafeSlow(BLOCK_BYTES);
  #offset = 0;
  /** By length, all of them from `#viewsFrom` on. */
  #views: (Buffer | undefined)[] = [];
  #viewsFrom = 0;

  /** Memory of exactly `length` bytes with old content; valid until the next `take` unless kept. */
  take(length: number): Buffer {
    if (length > BLOCK_BYTES) return Buffer.allocUnsafeSlow(length);
    if (this.#offset + length > BLOCK_BYTES) {
      this.#block = Buffer.allocUnsafeSlow(BLOCK_BYTES);
      this.#offset = 0;
      this.settle();
    }
    if (this.#offset === this.#viewsFrom && length <= VIEWS_MAX_BYTES) {
      return (this.#views[length] ??= this.#block.subarray(this.#offset, this.#offset + length));
    }
    return this.#block.subarray(this.#offset, this.#offset + length);
  }

  /** Where the next `take` begins; for `rewind`. */
  get mark(): number {
    return this.#offset;
  }

  /** Takes back everything kept since `mark` was read: all of it has left. */
  rewind(mark: number): void {
    // A block begun since then holds nothing older.
    this.#offset = mark <= this.#offset ? mark : 0;
    if (this.#offset !== this.#viewsFrom) this.settle();
  }

  /** Leaves the last `take(length)` to its user for good: its bytes are still queued somewhere. */
  keep(length: number): void {
    if (length <= BLOCK_BYTES) this.#offset += length;
  }

  /** What is kept now stays so for long, and the usual place to take from is behind it. */
  settle(): void {
    this.#views = [];
    this.#viewsFrom = this.#offset;
  }
}
