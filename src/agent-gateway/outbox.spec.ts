import { describe, expect, it } from 'vitest';
import { ackToWire, pingToWire } from '../agent-protocol/to-wire.js';
import type { WireServerMessage } from '../agent-protocol/wire.js';
import { Outbox, OUTBOX_MAX } from './outbox.js';

/** A stream that takes what it is told to take. */
class Pipe {
  readonly written: WireServerMessage[] = [];
  takes = Infinity;
  private drained: () => void = () => undefined;

  write(message: WireServerMessage): boolean {
    this.written.push(message);
    return this.written.length < this.takes;
  }

  on(_event: 'drain', listener: () => void): void {
    this.drained = listener;
  }

  drain(more: number): void {
    this.takes = this.written.length + more;
    this.drained();
  }
}

const command = (id: number): WireServerMessage => pingToWire(1_000 + id);

/** An agent whose cable is pulled takes nothing for as long as nobody notices; what is sent meanwhile must not fill the memory. */
describe('what waits for one agent', () => {
  it('goes at once, in order, while the stream takes it', () => {
    const pipe = new Pipe();
    const outbox = new Outbox(pipe);
    for (const id of [1, 2, 3]) expect(outbox.send(command(id))).toBe(true);
    outbox.sendLatest('ack', ackToWire(7));
    expect(pipe.written).toEqual([command(1), command(2), command(3), ackToWire(7)]);
    expect(outbox.waiting).toBe(0);
  });

  it('is bounded: beyond it a command is refused, not dropped, and those before it go when there is room', () => {
    const pipe = new Pipe();
    pipe.takes = 1;
    const outbox = new Outbox(pipe);
    const sent = Array.from({ length: OUTBOX_MAX + 50 }, (_, id) => outbox.send(command(id)));
    expect(sent.filter(Boolean)).toHaveLength(OUTBOX_MAX + 1);
    expect(sent.indexOf(false)).toBe(OUTBOX_MAX + 1);
    expect([pipe.written.length, outbox.waiting]).toEqual([1, OUTBOX_MAX]);
    pipe.drain(Infinity);
    expect(pipe.written).toEqual(Array.from({ length: OUTBOX_MAX + 1 }, (_, id) => command(id)));
  });

  it('of acknowledgements and pings is the newest of each only, after the commands', () => {
    const pipe = new Pipe();
    pipe.takes = 1;
    const outbox = new Outbox(pipe);
    outbox.send(command(0));
    for (let sequence = 1; sequence <= 1_000; sequence += 1) outbox.sendLatest('ack', ackToWire(sequence));
    for (let nonce = 1; nonce <= 1_000; nonce += 1) outbox.sendLatest('ping', pingToWire(nonce));
    outbox.send(command(1));
    expect(outbox.waiting).toBe(3);
    pipe.drain(2);
    expect(pipe.written.slice(1)).toEqual([command(1), pingToWire(1_000)]);
    pipe.drain(Infinity);
    expect(pipe.written.slice(3)).toEqual([ackToWire(1_000)]);
  });

  it('is forgotten when the stream is given up, and nothing is taken any more', () => {
    const pipe = new Pipe();
    pipe.takes = 1;
    const outbox = new Outbox(pipe);
    outbox.send(command(0));
    outbox.send(command(1));
    outbox.close();
    expect([outbox.waiting, outbox.send(command(2))]).toEqual([0, false]);
    outbox.sendLatest('ack', ackToWire(1));
    pipe.drain(Infinity);
    expect(pipe.written).toEqual([command(0)]);
  });
});
