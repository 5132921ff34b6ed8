import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { encodeChunk } from '../../support/fake-engine/wire.js';
import { waitFor } from '../../support/wait-for.js';
import { CLIENT_SECRET, type ClientKind, type Question } from './adapters/client-kind.js';
import { CLIENT_KINDS } from './client-kinds.js';
import { Gateway } from './gateway.js';
import { describeClients } from './installed.js';
import { ReplayEngine, type Writer } from './replay-engine.js';

const ASK: Question = { prompt: 'Tell me about connections', maxTokens: 16 };

/** Longest time from a client's leaving to the close of its engine request, ms. */
const CLOSE_MS = 250;
/** A machine busy with something else may be slow once; a gateway that is slow is so every time. */
const CLOSE_TRIES = 3;

const inOneByteWrites: Writer = async (events, wire) => {
  await wire.startStream();
  await wire.writeEach(encodeChunk(events.join('')));
  await wire.lastChunk();
};

const inOneWrite: Writer = async (events, wire) => {
  await wire.startStream();
  await wire.chunk(events.join(''));
  await wire.lastChunk();
};

/** Each event changed as `change` says, in a chunk of its own. */
const changed =
  (change: (event: string, index: number) => string): Writer =>
  async (events, wire) => {
    await wire.startStream();
    for (const [index, event] of events.entries()) await wire.chunk(change(event, index));
    await wire.lastChunk();
  };

const untilClose: Writer = async (events, wire) => {
  await wire.write('HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n');
  for (const event of events) await wire.write(event);
  wire.end();
};

/** Ways of writing a good stream that engines, proxies and networks have. */
const ODD_STREAMS: readonly (readonly [string, Writer])[] = [
  ['one byte per write', inOneByteWrites],
  ['all in one write', inOneWrite],
  ['CRLF', changed((event) => event.replaceAll('\n', '\r\n'))],
  ['no blank after the colon', changed((event) => event.replaceAll(/^(\w+): /gm, '$1:'))],
  ['comments between events', changed((event) => `: ping\n\n:\n\n: keep-alive\n\n${event}`)],
  ['a comment inside an event', changed((event) => `: inside\n${event}`)],
  ['a body that ends with the connection', untilClose],
];

describeClients('the connection of a stream', () => {
  let engine: ReplayEngine;
  let gateway: Gateway;

  beforeAll(async () => {
    engine = await ReplayEngine.start(['m1']);
    gateway = await Gateway.start([{ id: 'e1', url: engine.fake.url, models: ['m1'] }], {
      holdHeaders: '200ms',
    });
  });
  afterAll(async () => {
    await gateway?.stop();
    for (const request of engine.posts) {
      expect(request.headBytes.toString('latin1')).not.toContain(CLIENT_SECRET);
      expect(request.headers.has('cookie')).toBe(false);
    }
    expect(engine.fake.failures).toEqual([]);
    await engine?.stop();
  });

  const open = (kind: ClientKind) => kind.open({ gateway: gateway.url, model: 'm1', retries: 0 });

  describe.each(ODD_STREAMS)('%s', (_name, writer) => {
    it.each(CLIENT_KINDS)('$name: reads the right text', async (kind) => {
      engine.write(writer);
      const client = await open(kind);
      const { text } = await client.whole(ASK);
      expect((await client.stream(ASK)).text).toBe(text);
    });
  });

  it.each(CLIENT_KINDS)('$name: is done with the last event, not with the connection', async (kind) => {
    let finished = false;
    let finishedFirst: boolean | undefined;
    engine.write(async (events, wire) => {
      await wire.startStream();
      for (const event of events) await wire.chunk(event);
      // The engine never ends the body; whoever waits for it waits for the gateway to give up.
      await wire.waitClosed({ deadlineMs: 20_000 });
      finishedFirst = finished;
    });
    const client = await open(kind);
    const { text } = await client.stream(ASK);
    finished = true;
    expect(text).not.toBe('');
    await waitFor(() => finishedFirst !== undefined, { what: 'the gateway to let the engine go' });
    expect(finishedFirst).toBe(true);
  });

  /** Time from the client's leaving to the close of its connection at the engine. */
  async function leave(kind: ClientKind, when: 'before the first event' | 'in the answer'): Promise<number> {
    const count = engine.posts.length;
    engine.write(async (events, wire) => {
      if (when === 'in the answer') {
        await wire.startStream();
        for (const event of events.slice(0, -2)) await wire.chunk(event);
      }
      await wire.waitClosed({ deadlineMs: 20_000 });
    });
    const leaving = new AbortController();
    let spoke = false;
    const client = await open(kind);
    const over = client
      .stream({ ...ASK, signal: leaving.signal }, () => (spoke = true))
      .then(
        () => {},
        () => {},
      );
    await waitFor(() => engine.posts.length > count && (when === 'before the first event' || spoke));
    const leftAtMs = performance.now();
    leaving.abort();
    const connection = engine.posts[count]?.connection;
    const endedAtMs = await waitFor(() => connection?.endedAtMs, { what: 'the close at the engine' });
    await over;
    return endedAtMs - leftAtMs;
  }

  describe.each(['before the first event', 'in the answer'] as const)('left %s', (when) => {
    it.each(CLIENT_KINDS)('$name: the engine request is closed at once', async (kind) => {
      let tookMs = Number.POSITIVE_INFINITY;
      for (let attempt = 0; attempt < CLOSE_TRIES && tookMs > CLOSE_MS; attempt++) {
        tookMs = await leave(kind, when);
      }
      expect(tookMs).toBeLessThanOrEqual(CLOSE_MS);
      await gateway.settled();
    });
  });

  it('is kept alive through a long first token, and no client minds', async () => {
    let release = (): void => {};
    const released = new Promise<void>((resolve) => (release = resolve));
    engine.write(async (events, wire) => {
      await released;
      await wire.startStream();
      for (const event of events) await wire.chunk(event);
      await wire.lastChunk();
    });
    const streams = CLIENT_KINDS.map(async (kind) => [
      kind.name,
      (await (await open(kind)).stream(ASK)).text,
    ]);
    const watchers = [
      await Watcher.open(gateway.url, '/v1/chat/completions', ': keep-alive\n\n'),
      await Watcher.open(gateway.url, '/v1/messages', 'event: ping\ndata: {"type": "ping"}\n\n'),
    ];
    // The second one comes as long after the first as all others do.
    for (const watcher of watchers) await watcher.saw(2);
    release();
    const client = async (kind: ClientKind) => [kind.name, (await (await open(kind)).whole(ASK)).text];
    expect(await Promise.all(streams)).toEqual(await Promise.all(CLIENT_KINDS.map(client)));
  });
});

/** Reads a stream's bytes as they come. */
class Watcher {
  private text = '';

  private constructor(private readonly heartbeat: string) {}

  static async open(gateway: string, path: string, heartbeat: string): Promise<Watcher> {
    const watcher = new Watcher(heartbeat);
    const response = await fetch(gateway + path, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({
        model: 'm1',
        stream: true,
        max_tokens: 4,
        messages: [{ role: 'user', content: ASK.prompt }],
      }),
    });
    void watcher.read(response);
    return watcher;
  }

  async saw(count: number): Promise<void> {
    await waitFor(() => this.text === this.heartbeat.repeat(count), {
      deadlineMs: 30_000,
      what: `${count} heartbeats and nothing else`,
    });
  }

  private async read(response: Response): Promise<void> {
    const decoder = new TextDecoder();
    for await (const bytes of response.body ?? []) this.text += decoder.decode(bytes, { stream: true });
  }
}
