import type { Socket } from 'node:net';

/** The handle behind a socket, as far as it is used here. Long-standing, though not in Node's types. */
interface Handle {
  /** 0, or a negated errno. What the kernel does not take at once is kept and sent later, with `request` as its record. */
  writeBuffer(request: WriteRequest, bytes: Uint8Array): number;
  /** Bytes it keeps. */
  readonly writeQueueSize: number;
  /** Called with what was read, or that nothing more will be. */
  onread: (this: Handle, bytes: unknown) => unknown;
}

/** One write that the kernel did not take at once. */
interface WriteRequest {
  oncomplete: (status: number) => void;
  /** Keeps the memory alive. */
  buffer: Uint8Array;
}

interface Internals {
  readonly TCP: abstract new () => Handle;
  readonly WriteWrap: new () => WriteRequest;
  /** What the last call on any handle came to, by the indices below. */
  readonly streamState: Int32Array;
  readonly lastWriteWasAsync: number;
  readonly bytesReadOrError: number;
}

/** A socket some of whose bytes wait for the kernel behind Node's back. */
interface WaitingSocket extends Socket {
  _handle?: Handle | null;
  waitsForKernel?: boolean;
}

/**
 * What `writeNow` came to: `taken` by the kernel, `waiting` for it in the socket, `refused`: nothing was done, or `broken`:
 * the peer takes nothing more, though what it said before may still be there to be read.
 */
export type WriteOutcome = 'taken' | 'waiting' | 'refused' | 'broken';

/**
 * Hands bytes to the kernel without Node's stream around the socket, which takes several microseconds, three objects and
 * a turn of the tick queue for each write. Only where nothing waits in that stream, so that the order stays; `refused`
 * else, also for what is no plain TCP socket and where this Node has no such way: then `socket.write` is the way.
 *
 * After `waiting` the bytes must not change until the socket says `drain`, or is closed.
 */
export function writeNow(socket: Socket, bytes: Uint8Array): WriteOutcome {
  const handle = (socket as WaitingSocket)._handle;
  if (internals === undefined || !(handle instanceof internals.TCP)) return 'refused';
  // Not `writable` alone: that is true of a socket that is still connecting.
  if (!socket.writable || socket.connecting || socket.writableLength !== 0 || waitsForKernel(socket))
    return 'refused';
  const request = (spare ??= new internals.WriteWrap());
  if (handle.writeBuffer(request, bytes) !== 0) return 'broken';
  if (internals.streamState[internals.lastWriteWasAsync] === 0) return 'taken';
  spare = undefined;
  wait(socket, request, bytes);
  return 'waiting';
}

/** Whether bytes of an earlier `writeNow` wait for the kernel. */
export const waitsForKernel = (socket: Socket): boolean => (socket as WaitingSocket).waitsForKernel === true;

/** Bytes given to a socket that its kernel has not taken yet. */
export function unsentBytes(socket: Socket): number {
  const handle = (socket as WaitingSocket)._handle;
  const kept = waitsForKernel(socket) && handle ? handle.writeQueueSize : 0;
  // A write of Node's stream that the handle keeps is counted by both.
  return Math.max(kept, socket.writableLength);
}

/**
 * From now on `onRead` is told of bytes read into the buffer of a connected socket's `onread` option without Node's stream
 * in between, which looks into half a dozen places for each read. It returns false to pause. Ends and errors go the usual
 * way, as does everything where this Node has no such way.
 * @returns gives the reading back to Node's stream
 */
export function readNow(socket: Socket, onRead: (length: number) => boolean): () => void {
  const handle = (socket as WaitingSocket)._handle;
  if (internals === undefined || !(handle instanceof internals.TCP)) return NOTHING_TO_GIVE_BACK;
  const { streamState, bytesReadOrError } = internals;
  const usual = handle.onread;
  handle.onread = function (bytes) {
    const length = streamState[bytesReadOrError] as number;
    if (length <= 0) return usual.call(this, bytes);
    if (!onRead(length)) socket.pause();
    return undefined;
  };
  return () => {
    handle.onread = usual;
  };
}

const NOTHING_TO_GIVE_BACK = () => undefined;

/** Its record is used only by a write that waits, so that all others share one. */
let spare: WriteRequest | undefined;

function wait(socket: WaitingSocket, request: WriteRequest, bytes: Uint8Array): void {
  socket.waitsForKernel = true;
  request.buffer = bytes;
  request.oncomplete = (status) => {
    socket.waitsForKernel = false;
    if (socket.destroyed) return;
    if (status < 0) socket.destroy(new Error(`the connection broke while bytes waited (${status})`));
    // What came meanwhile waits in Node's stream, which says so itself.
    else if (socket.writableLength === 0) socket.emit('drain');
  };
}

const internals = find();

/** Undefined where this Node has them elsewhere or otherwise. */
function find(): Internals | undefined {
  try {
    const { binding } = process as unknown as { binding: (name: string) => Record<string, unknown> };
    const wrap = binding('stream_wrap');
    const { WriteWrap, streamBaseState, kLastWriteWasAsync, kReadBytesOrError } = wrap;
    const { TCP } = binding('tcp_wrap');
    if (typeof WriteWrap !== 'function' || typeof TCP !== 'function') return undefined;
    if (typeof kLastWriteWasAsync !== 'number' || typeof kReadBytesOrError !== 'number') return undefined;
    if (!(streamBaseState instanceof Int32Array)) return undefined;
    return {
      TCP: TCP as Internals['TCP'],
      WriteWrap: WriteWrap as Internals['WriteWrap'],
      streamState: streamBaseState,
      lastWriteWasAsync: kLastWriteWasAsync,
      bytesReadOrError: kReadBytesOrError,
    };
  } catch {
    return undefined;
  }
}
