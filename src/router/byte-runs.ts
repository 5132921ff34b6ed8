/** Copies of runs whose memory is about to be used again; larger ones get memory of their own. */
const SCRATCH_BYTES = 4 * 1024;

/**
 * Runs of bytes that leave together, in one write. Reused: what is in it is valid until the next `clear`, and the
 * buffers behind it only until the call that filled it returns.
 */
export class ByteRuns {
  count = 0;
  /** Bytes in all runs. */
  length = 0;
  private readonly buffers: Buffer[] = [];
  private readonly starts: number[] = [];
  private readonly ends: number[] = [];
  /** Got when it is first needed: most streams never do. */
  private scratch: Buffer | undefined;
  private scratchUsed = 0;

  clear(): this {
    this.count = 0;
    this.length = 0;
    this.scratchUsed = 0;
    return this;
  }

  /** Adds a run as it lies. */
  add(buffer: Buffer, from: number, to: number): this {
    if (from >= to) return this;
    this.buffers[this.count] = buffer;
    this.starts[this.count] = from;
    this.ends[this.count] = to;
    this.count += 1;
    this.length += to - from;
    return this;
  }

  /** Adds a run whose memory will hold something else before the runs leave. */
  addCopy(buffer: Buffer, from: number, to: number): this {
    const length = to - from;
    if (this.scratchUsed + length > SCRATCH_BYTES)
      return this.add(Buffer.from(buffer.subarray(from, to)), 0, length);
    this.scratch ??= Buffer.allocUnsafeSlow(SCRATCH_BYTES);
    const at = this.scratchUsed;
    buffer.copy(this.scratch, at, from, to);
    this.scratchUsed += length;
    return this.add(this.scratch, at, at + length);
  }

  /** Writes all runs one after the other into `target` at `at`; returns the index after the last byte. */
  copyTo(target: Buffer, at: number): number {
    let next = at;
    for (let i = 0; i < this.count; i++) {
      next += (this.buffers[i] as Buffer).copy(target, next, this.starts[i], this.ends[i]);
    }
    return next;
  }

  /** All bytes in memory of their own. */
  toBuffer(): Buffer {
    const bytes = Buffer.allocUnsafe(this.length);
    this.copyTo(bytes, 0);
    return bytes;
  }
}

/** One for the whole process: whatever fills it hands it on and is done with it in the same turn. */
const shared = new ByteRuns();

/** The shared runs, emptied. */
export const emptyRuns = (): ByteRuns => shared.clear();

/** The shared runs with one run in them. */
export const oneRun = (buffer: Buffer, from: number, to: number): ByteRuns =>
  shared.clear().add(buffer, from, to);

/** The shared runs with a text in them. */
export const textRun = (text: string): ByteRuns => {
  const bytes = Buffer.from(text);
  return oneRun(bytes, 0, bytes.length);
};
