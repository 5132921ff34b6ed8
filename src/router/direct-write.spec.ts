import { once } from 'node:events';
import net from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { readAll, socketPair } from '../../test/support/socket-pair.js';

import { readNow, unsentBytes, waitsForKernel, writeNow } from './direct-write.js';

const open: { destroy(): void }[] = [];
afterEach(() => {
  for (const socket of open.splice(0)) socket.destroy();
});

async function connection(): ReturnType<typeof socketPair> {
  const pair = await socketPair();
  open.push(pair.near, pair.far);
  return pair;
}

/** Writes until the kernel takes no more; returns what was written. */
function fill(near: net.Socket): string {
  let written = '';
  for (let i = 0; i < 10_000; i++) {
    const piece = String.fromCharCode(97 + (i % 26)).repeat(50_000);
    written += piece;
    const outcome = writeNow(near, Buffer.from(piece));
    expect(outcome).not.toBe('refused');
    if (outcome === 'waiting') return written;
  }
  throw new Error('the kernel takes everything');
}

describe('writeNow', () => {
  it('gives bytes to the kernel at once, where this Node has the way', async () => {
    const { near, far } = await connection();
    // Without it everything still works, slower: this says that it is there in the Node the tests run on.
    expect([writeNow(near, Buffer.from('one;')), writeNow(near, Buffer.from('two;'))]).toEqual([
      'taken',
      'taken',
    ]);
    expect([near.bytesWritten, near.writableLength, waitsForKernel(near)]).toEqual([8, 0, false]);
    near.end('three');
    expect(await readAll(far)).toBe('one;two;three');
  });

  it('keeps what the kernel does not take, and everything behind it in order', async () => {
    const { near, far } = await connection();
    let expected = fill(near);
    expect(waitsForKernel(near)).toBe(true);
    expect(unsentBytes(near)).toBeGreaterThan(0);
    expect(writeNow(near, Buffer.from('not this'))).toBe('refused');
    near.write('through the stream;');
    expected += 'through the stream;';
    expect(writeNow(near, Buffer.from('not this'))).toBe('refused');
    const text = readAll(far);
    near.end('the end');
    expect((await text) === `${expected}the end`).toBe(true);
    expect(unsentBytes(near)).toBe(0);
  });

  it('says drain when all has left, and can be used again', async () => {
    const { near, far } = await connection();
    const written = fill(near);
    const drained = once(near, 'drain');
    const text = readAll(far);
    await drained;
    expect([waitsForKernel(near), writeNow(near, Buffer.from('again'))]).toEqual([false, 'taken']);
    near.end();
    expect((await text) === `${written}again`).toBe(true);
  });

  it('does nothing more on a socket that was closed, ended or is not there yet', async () => {
    const [{ near: closed }, { near: ended }] = [await connection(), await connection()];
    fill(closed);
    closed.destroy();
    ended.end();
    const server = net.createServer().listen(0, '127.0.0.1');
    open.push({ destroy: () => server.close() });
    await once(server, 'listening');
    const early = net.connect((server.address() as net.AddressInfo).port, '127.0.0.1');
    open.push(early);
    for (const socket of [closed, ended, early]) expect(writeNow(socket, Buffer.from('x'))).toBe('refused');
    await once(closed, 'close');
  });

  it('leaves the error of a broken connection to the stream', async () => {
    const { near, far } = await connection();
    fill(near);
    let drains = 0;
    near.on('drain', () => (drains += 1));
    const closed = new Promise((resolve) => near.once('close', resolve));
    far.resetAndDestroy();
    await closed;
    expect([near.destroyed, drains]).toEqual([true, 0]);
  });
});

describe('readNow', () => {
  /** A socket that reads into `slab`, and the other end of its connection. */
  async function reading(slab: Buffer, usual: (length: number) => void) {
    const server = net.createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as net.AddressInfo;
    const onread = { buffer: slab, callback: (length: number) => (usual(length), true) };
    const near = net.connect({ port, host: '127.0.0.1', onread });
    const [[far]] = (await Promise.all([once(server, 'connection'), once(near, 'connect')])) as [
      [net.Socket],
      unknown,
    ];
    server.close();
    open.push(near, far);
    return { near, far };
  }

  it('tells of every byte, pauses, goes on, and leaves the end to the stream', async () => {
    const slab = Buffer.alloc(64);
    const { near, far } = await reading(slab, () => expect.unreachable('the usual way'));
    let text = '';
    let pauses = 0;
    readNow(near, (length) => {
      text += slab.toString('latin1', 0, length);
      if (text.length < 1_000 || pauses > 0) return true;
      pauses += 1;
      setImmediate(() => {
        // Nothing came meanwhile.
        expect(text.length).toBe(lengthAtPause);
        near.resume();
      });
      const lengthAtPause = text.length;
      return false;
    });
    const sent = Array.from({ length: 1_000 }, (_, i) => `${i};`).join('');
    far.end(sent);
    await once(near, 'end');
    expect([text, pauses]).toEqual([sent, 1]);
  });

  it('gives the reading back', async () => {
    const slab = Buffer.alloc(64);
    const heard: string[] = [];
    const { near, far } = await reading(slab, (length) => heard.push(slab.toString('latin1', 0, length)));
    const giveBack = readNow(near, (length) => {
      heard.push(`now ${slab.toString('latin1', 0, length)}`);
      giveBack();
      far.end('two');
      return true;
    });
    far.write('one');
    await once(near, 'end');
    expect(heard).toEqual(['now one', 'two']);
  });

  it('leaves a broken connection to the stream', async () => {
    const { near, far } = await reading(Buffer.alloc(64), () => undefined);
    const errors: string[] = [];
    near.on('error', (error: NodeJS.ErrnoException) => errors.push(error.code ?? ''));
    readNow(near, () => true);
    const closed = new Promise((resolve) => near.once('close', resolve));
    far.resetAndDestroy();
    await closed;
    expect(errors).toEqual(['ECONNRESET']);
  });
});
