import type { Socket } from 'node:net';
import { WriteArena } from './bytes/write-arena.js';
import { waitsForKernel, writeNow } from './direct-write.js';

/** Writes that are gathered at most before they leave: whoever waits for the first one must not wait for a whole turn. */
export const GATHERED_MAX = 16;
/** And their bytes. */
export const GATHERED_MAX_BYTES = 128 * 1024;

/** Writes in one turn, on average, from which on gathering pays for what the end of a turn costs. */
const WORTH_GATHERING = 2;
/** Weight of the latest turn in that average. */
const LATEST_WEIGHT = 0.25;
/** Writes that leave at once before a turn is looked at again. */
const TRY_AGAIN_AFTER = 16;

/** Whoever wants to know when its bytes were handed to the socket. */
export interface Sender {
  sent(): void;
}

/**
 * The way out for everything that is relayed, to clients and to engines.
 *
 * A write to a sleeping peer wakes it, and on a busy loop that costs more than the write: a peer that gets one message
 * every twenty microseconds falls asleep in between. So while several writes come in one turn of the loop they are
 * gathered and leave one after the other; the first one wakes the peer, the others find it awake. Where writes come one
 * by one, as for a single client, each leaves at once. Order on each socket is the order of the calls.
 */
export class Outbox {
  private readonly arena = new WriteArena();
  private readonly sockets: Socket[] = [];
  private readonly pieces: Buffer[] = [];
  private readonly senders: (Sender | undefined)[] = [];
  private count = 0;
  private bytes = 0;
  /** Writes of this turn, those that have left included. */
  private turnWrites = 0;
  private averageWrites = 1;
  private writesUntilTrial = TRY_AGAIN_AFTER;
  private turnEndPlanned = false;
  private flushing = false;
  private arenaMark = 0;

  /** Memory for the next `send`, with old content; nobody's any more once something else is taken or sent. */
  take(length: number): Buffer {
    return this.arena.take(length);
  }

  /**
   * Sends `piece`, which must be what the last `take` gave (or empty). `sender` hears once, perhaps before this returns,
   * that it was handed to the socket.
   * @returns false if the peer takes no more bytes: earlier ones are still waiting for it, and `drain` will come
   */
  send(socket: Socket, piece: Buffer, sender?: Sender): boolean {
    if (!this.gathers()) return this.write(socket, piece, sender);
    if (this.count === 0) this.arenaMark = this.arena.mark;
    this.arena.keep(piece.length);
    this.sockets[this.count] = socket;
    this.pieces[this.count] = piece;
    this.senders[this.count] = sender;
    this.count += 1;
    this.turnWrites += 1;
    this.bytes += piece.length;
    if (!this.turnEndPlanned) {
      this.turnEndPlanned = true;
      setImmediate(this.endTurn);
    }
    if (this.count === GATHERED_MAX || this.bytes >= GATHERED_MAX_BYTES) this.flush();
    return isFree(socket);
  }

  /** Hands over what was gathered; before anything is done to a socket past this outbox. */
  flush(): void {
    // A write may bring an answer at once (TLS does), and that may end up here again: the loop below takes it along.
    if (this.flushing) return;
    this.flushing = true;
    let allTaken = true;
    for (let i = 0; i < this.count; i++) {
      const socket = this.sockets[i] as Socket;
      const piece = this.pieces[i] as Buffer;
      if (!handOver(socket, piece)) allTaken = false;
      this.senders[i]?.sent();
      this.senders[i] = undefined;
    }
    this.count = this.bytes = 0;
    this.flushing = false;
    if (allTaken) this.arena.rewind(this.arenaMark);
    else this.arena.settle();
  }

  private gathers(): boolean {
    if (this.averageWrites >= WORTH_GATHERING || this.count > 0) return true;
    if (--this.writesUntilTrial > 0) return false;
    this.writesUntilTrial = TRY_AGAIN_AFTER;
    return true;
  }

  private write(socket: Socket, piece: Buffer, sender: Sender | undefined): boolean {
    const taken = handOver(socket, piece);
    if (!taken) {
      this.arena.keep(piece.length);
      this.arena.settle();
    }
    sender?.sent();
    return taken;
  }

  private readonly endTurn = (): void => {
    this.turnEndPlanned = false;
    this.flush();
    this.averageWrites += (this.turnWrites - this.averageWrites) * LATEST_WEIGHT;
    this.turnWrites = 0;
  };
}

const NOTHING = Buffer.alloc(0);

/** False if the peer does not take all of it, or something before it, now. */
function handOver(socket: Socket, piece: Buffer): boolean {
  if (piece.length > 0) {
    const outcome = writeNow(socket, piece);
    if (outcome === 'taken') return true;
    if (outcome === 'waiting') return false;
    // A failed write is repeated by Node's stream, which tells everybody concerned.
    if (socket.writable) socket.write(piece);
  }
  if (isFree(socket)) return true;
  tellOfDrain(socket);
  return false;
}

/** Nothing that was sent over it waits. */
export const isFree = (socket: Socket): boolean => socket.writableLength === 0 && !waitsForKernel(socket);

/**
 * Whoever was told that a peer takes no more bytes waits for `drain`. A socket says that only when more was waiting than
 * its own mark, so for an event or two it would never come, and the stream would stand still for ever.
 */
function tellOfDrain(socket: Socket): void {
  if (socket.writable && socket.writableLength !== 0 && !socket.writableNeedDrain)
    socket.write(NOTHING, () => socket.emit('drain'));
}

/** The process has one: what goes to clients and what goes to engines leaves in the same turns. */
export const outbox = new Outbox();
