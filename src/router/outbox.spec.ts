import type net from 'node:net';
import { setImmediate as turn } from 'node:timers/promises';
import { afterEach, describe, expect, it } from 'vitest';
import { readAll, socketPair } from '../../test/support/socket-pair.js';

import { GATHERED_MAX, Outbox } from './outbox.js';

const open: { destroy(): void }[] = [];

/** Lets a new outbox see crowded turns until it gathers. */
async function crowded(outbox: Outbox): Promise<void> {
  const { near, far } = await connection();
  far.resume();
  for (let turns = 0; turns < 10; turns++) {
    for (let i = 0; i < 2 * GATHERED_MAX; i++) put(outbox, near, 'x');
    await turn();
  }
}

async function connection(): ReturnType<typeof socketPair> {
  const pair = await socketPair();
  open.push(pair.near, pair.far);
  return pair;
}

function put(outbox: Outbox, socket: net.Socket, text: string, sent?: () => void): boolean {
  const piece = outbox.take(text.length);
  piece.write(text, 'latin1');
  return outbox.send(socket, piece, sent === undefined ? undefined : { sent });
}

afterEach(() => {
  for (const socket of open.splice(0)) socket.destroy();
});

describe('Outbox', () => {
  it('keeps the order on each socket, however many writes come in one turn of the loop', async () => {
    const outbox = new Outbox();
    const [one, two] = [await connection(), await connection()];
    const expected = ['', ''];
    for (let round = 0; round < 60; round++) {
      // Alone for many turns, then crowded: both ways of sending and the changes between them.
      const writes = round % 20 < 12 ? 1 : 3 * GATHERED_MAX;
      for (let i = 0; i < writes; i++) {
        const text = `${round}.${i};`;
        put(outbox, one.near, text);
        expected[0] += text;
        if (i % 2 === 1) {
          put(outbox, two.near, text.repeat(3));
          expected[1] += text.repeat(3);
        }
      }
      await turn();
    }
    outbox.flush();
    const texts = Promise.all([readAll(one.far), readAll(two.far)]);
    one.near.end();
    two.near.end();
    expect(await texts).toEqual(expected);
  });

  it('gathers no more than its bound before the first write leaves', async () => {
    const outbox = new Outbox();
    await crowded(outbox);
    const { near } = await connection();
    for (let i = 0; i < GATHERED_MAX - 1; i++) put(outbox, near, 'x');
    expect(near.bytesWritten).toBe(0);
    put(outbox, near, 'x');
    expect(near.bytesWritten).toBe(GATHERED_MAX);
  });

  it('sends at once again where writes come one by one', async () => {
    const outbox = new Outbox();
    await crowded(outbox);
    const { near } = await connection();
    let atOnce = 0;
    for (let i = 1; i <= 40; i++) {
      put(outbox, near, 'x');
      if (near.bytesWritten === i) atOnce += 1;
      await turn();
    }
    expect(atOnce).toBeGreaterThan(25);
  });

  it('says when bytes were handed over, once, also for a socket that is gone', async () => {
    const outbox = new Outbox();
    await crowded(outbox);
    const { near } = await connection();
    const heard: string[] = [];
    put(outbox, near, 'a', () => heard.push(`a${near.bytesWritten}`));
    outbox.send(near, Buffer.alloc(0), { sent: () => heard.push('empty') });
    expect(heard).toEqual([]);
    outbox.flush();
    near.destroy();
    put(outbox, near, 'b', () => heard.push('b'));
    outbox.flush();
    outbox.flush();
    await turn();
    expect(heard).toEqual(['a1', 'empty', 'b']);
  });

  it('sends nothing twice when a write leads to more writes than it may gather', async () => {
    const outbox = new Outbox();
    await crowded(outbox);
    const { near, far } = await connection();
    let expected = 'first;';
    put(outbox, near, 'first;', () => {
      for (let i = 0; i < 3 * GATHERED_MAX; i++) {
        put(outbox, near, `${i};`);
        expected += `${i};`;
      }
    });
    outbox.flush();
    const text = readAll(far);
    near.end();
    expect(await text).toBe(expected);
  });

  it('tells that a peer takes no more, and leaves the memory of what waits alone', async () => {
    const outbox = new Outbox();
    const [slow, quick] = [await connection(), await connection()];
    quick.far.resume();
    let expected = '';
    let full = false;
    for (let i = 0; !full && i < 2_000; i++) {
      const text = String.fromCharCode(97 + (i % 26)).repeat(20_000);
      full = !put(outbox, slow.near, text);
      expected += text;
      if (i % 5 === 0) await turn();
    }
    expect(full).toBe(true);
    // Others go on; what they send must not land in memory that still waits.
    for (let i = 0; i < 100; i++) {
      put(outbox, quick.near, '-'.repeat(10_000));
      await turn();
    }
    const text = readAll(slow.far);
    slow.near.end();
    expect((await text) === expected).toBe(true);
  });
});
