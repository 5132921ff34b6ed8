import net from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { ResponseReader } from '../../src/router/upstream/response-reader.js';
import { UpstreamPool } from '../../src/router/upstream/upstream-pool.js';
import type { UpstreamSink } from '../../src/router/upstream/upstream-sink.js';
import { nextTurn, waitFor } from '../support/wait-for.js';
import { corpusOf, fuzz, fuzzTimeoutMs, mutate, pick, randomSplit } from './fuzz.js';

const SEEDS = corpusOf('response-reader').map(({ bytes }) => bytes).filter((bytes) => bytes.length < 4096); // prettier-ignore
const TOKENS = [
  '\r\n',
  '\r\n\r\n',
  '0\r\n\r\n',
  'HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nEVIL',
  'content-length: 3\r\n',
  '5\r\nhello\r\n',
];

/** What the server writes for `/wild`, and whether it closes the connection behind it. */
interface Script {
  pieces: readonly Buffer[];
  close: boolean;
}

interface Outcome {
  readonly status: number;
  readonly payload: string;
  readonly ended: boolean;
  readonly reused: boolean;
}

let server: net.Server;
let pool: UpstreamPool;
let script: Script = { pieces: [], close: true };

/** Answers `/wild` with the script, anything else with pong. */
async function serve(socket: net.Socket): Promise<void> {
  for await (const request of socket as AsyncIterable<Buffer>) {
    if (!request.toString().startsWith('GET /wild')) {
      socket.write('HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\npong');
      continue;
    }
    for (const piece of script.pieces) {
      socket.write(piece);
      await nextTurn();
    }
    if (script.close) socket.end();
  }
}

function ask(path: string): Promise<Outcome> {
  return new Promise((resolve, reject) => {
    let status = 0;
    let payload = '';
    let lastCalls = 0;
    const finish = (ended: boolean) => {
      if (++lastCalls > 1) reject(new Error('a call after the last one'));
      resolve({ status, payload, ended, reused: exchange.reusedSocket });
    };
    const sink: UpstreamSink = {
      onHead: (head) => void (status = head.status),
      onData: (slab, from, to) => {
        payload += slab.toString('latin1', from, to);
        return true;
      },
      onEnd: () => finish(true),
      onError: () => finish(false),
    };
    const exchange = pool.send({ head: `GET ${path} HTTP/1.1\r\nhost: e\r\n\r\n`, body: [] }, sink);
  });
}

/** The whole response at once, and whether its own bytes say where it ends. */
function readWhole(bytes: Buffer): Omit<Outcome, 'reused'> & { selfContained: boolean } {
  const reader = new ResponseReader();
  reader.reset(false);
  const state = reader.push(Buffer.from(bytes), 0, bytes.length);
  const status = reader.headReady ? reader.head.status : 0;
  const payload = reader.payload.toString('latin1', reader.payloadFrom, reader.payloadTo);
  const ended = state === 'done_with_extra' || reader.finish() === 'done';
  return { status, payload, ended, selfContained: state === 'done' };
}

beforeAll(async () => {
  server = net.createServer({ noDelay: true }, (socket) => {
    socket.on('error', () => {});
    serve(socket).catch(() => {});
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  pool = new UpstreamPool({ host: '127.0.0.1', port: (server.address() as net.AddressInfo).port });
});

afterAll(() => {
  pool.destroy();
  server.close();
});

describe('upstream client over real sockets', () => {
  it(
    'reads what the bytes say, and keeps only connections whose next answer will be the next',
    async () => {
      const seen = { attempts: 0, reused: 0 };
      await fuzz(200, async (random) => {
        const bytes = random() < 0.3 ? pick(random, SEEDS) : mutate(random, pick(random, SEEDS), TOKENS);
        const { selfContained, ...wanted } = readWhole(bytes);
        const pieces = randomSplit(random, bytes);
        script = { pieces: pieces.length > 100 ? [bytes] : pieces, close: !selfContained };
        const { reused: _reused, ...got } = await ask('/wild');
        expect(got).toEqual(wanted);
        // What followed the response, or its end, must have closed the connection before the next request.
        if (!selfContained) await waitFor(() => pool.counts.open === 0);
        const next = await ask('/ping');
        expect(next).toMatchObject({ status: 200, payload: 'pong', ended: true });
        seen.attempts++;
        if (next.reused) seen.reused++;
      })();
      expect(seen.reused).toBeGreaterThan(0);
    },
    fuzzTimeoutMs(),
  );
});
