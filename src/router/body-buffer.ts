/** Request bodies held at once by the whole process, bytes; whoever comes beyond that is told to come back. */
export const BODIES_MAX_BYTES = 1024 * 1024 * 1024;

/** Bodies announced as larger than this get their memory at once: joining pieces would hold them twice. */
const PREALLOCATE_BYTES = 256 * 1024;

/** A body in more pieces than this is no ordinary one: from there on small pieces are joined, or each byte could cost hundreds. */
const PIECES_APART = 64;
const SMALL_PIECE_BYTES = 1024;
/** Memory in which they are joined. */
const JOINT_BYTES = 16 * 1024;

/** What all bodies together may hold. */
export class BodyBudget {
  private held = 0;

  constructor(private readonly maxBytes = BODIES_MAX_BYTES) {}

  get heldBytes(): number {
    return this.held;
  }

  take(bytes: number): boolean {
    if (this.held + bytes > this.maxBytes) return false;
    this.held += bytes;
    return true;
  }

  giveBack(bytes: number): void {
    this.held -= bytes;
  }
}

/** Why a body is not taken in any further. */
export type BodyRefusal = 'too_large' | 'no_room';

/** Collects the bytes of one body, within its own limit and the process's. */
export class BodyBuffer {
  /** Bytes so far. */
  length = 0;
  private whole: Buffer | undefined;
  private pieces: Buffer[] = [];
  /** Where the last pieces are joined; the part in use is the last of `pieces`. */
  private joint: { readonly block: Buffer; used: number } | undefined = undefined;
  private taken = 0;

  constructor(
    private readonly limit: number,
    private readonly budget: BodyBudget,
    /** -1 where the client announced none. */
    private readonly announced: number,
  ) {}

  push(bytes: Buffer): BodyRefusal | undefined {
    const length = this.length + bytes.length;
    if (length > this.limit) return 'too_large';
    if (!this.budget.take(bytes.length)) return 'no_room';
    this.taken += bytes.length;
    if (this.announced > PREALLOCATE_BYTES) {
      this.whole ??= Buffer.allocUnsafeSlow(this.announced);
      bytes.copy(this.whole, this.length);
    } else {
      this.keep(bytes);
    }
    this.length = length;
    return undefined;
  }

  private keep(bytes: Buffer): void {
    if (this.pieces.length < PIECES_APART || bytes.length >= SMALL_PIECE_BYTES) {
      this.joint = undefined;
      this.pieces.push(bytes);
      return;
    }
    let { joint } = this;
    if (joint === undefined || joint.used + bytes.length > JOINT_BYTES) {
      joint = this.joint = { block: Buffer.allocUnsafeSlow(JOINT_BYTES), used: 0 };
      this.pieces.push(joint.block);
    }
    bytes.copy(joint.block, joint.used);
    joint.used += bytes.length;
    this.pieces[this.pieces.length - 1] = joint.block.subarray(0, joint.used);
  }

  /** The body in one piece; the caller's from now on, though still counted until `release`. */
  take(): Buffer {
    const [first] = this.pieces;
    const bytes =
      this.whole ?? (this.pieces.length === 1 && first !== undefined ? first : Buffer.concat(this.pieces));
    this.whole = undefined;
    this.pieces = [];
    this.joint = undefined;
    return bytes;
  }

  /** The bytes are needed no more. Harmless when repeated. */
  release(): void {
    this.whole = undefined;
    this.pieces = [];
    this.joint = undefined;
    this.budget.giveBack(this.taken);
    this.taken = 0;
  }
}
