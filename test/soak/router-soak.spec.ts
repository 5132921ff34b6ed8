import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect, it } from 'vitest';
import { EXPLAIN_RING_MAX } from '../../src/router/explain-ring.js';
import { seededRandom } from '../../src/shared/random.js';
import { CountingClock } from '../support/counting-clock.js';
import type { RequestHandler } from '../support/fake-engine/fake-engine.js';
import { RawClient } from '../support/raw-client.js';
import { delta, DONE, finish, RouterHarness, sse } from '../support/router-harness.js';
import { waitFor } from '../support/wait-for.js';

/** Requests of one run. */
const REQUESTS = Number(process.env['LLMGW_SOAK_REQUESTS'] ?? 20_000);
/** Those of them before memory is measured: more than the router remembers, so that all it ever keeps is there. */
const WARM_UP = Math.min(REQUESTS / 2, EXPLAIN_RING_MAX * 2);
const SEED = Number(process.env['LLMGW_SOAK_SEED'] ?? 1);
const CLIENTS = 24;
const PROMPT_BYTES = 8 * 1024;
const MIB = 1024 * 1024;

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;

const events: RequestHandler = async (_request, wire) => {
  await wire.startStream();
  for (let i = 0; i < 6; i++) await wire.chunk(delta(`word ${i}`));
  await wire.chunk(finish() + DONE);
  await wire.lastChunk();
};
const whole: RequestHandler = (_request, wire) =>
  wire.respond(200, '{"choices":[],"usage":{"prompt_tokens":2000,"completion_tokens":6}}');
const LARGE_ERROR = JSON.stringify({ error: { message: 'x'.repeat(100_000), code: 500 } });

/** What engines do to a request, by a word in it; most of the time they answer. */
const ACTS: Readonly<Record<string, RequestHandler>> = {
  ok: (request, wire) => (request.body.includes('"stream":true') ? events : whole)(request, wire),
  largeError: (_request, wire) => wire.respond(500, LARGE_ERROR),
  busy: (_request, wire) => wire.respond(503, '{"error":{}}', { 'retry-after': '1' }),
  refusal: (_request, wire) => wire.respond(400, '{"error":{}}'),
  page: (_request, wire) => wire.respond(200, '<html>', { 'content-type': 'text/html' }),
  reset: (_request, wire) => wire.rst(),
  resetAfterHead: async (_request, wire) => {
    await wire.startStream();
    wire.rst();
  },
  resetInStream: async (_request, wire) => {
    await wire.startStream();
    await wire.chunk(`${delta('a')}data: {"half`);
    wire.rst();
  },
  errorFirst: async (_request, wire) => {
    await wire.startStream();
    await wire.chunk(sse({ error: { message: 'full', code: 503 } }));
    await wire.lastChunk();
  },
  slow: async (request, wire) => {
    await Promise.race([wire.waitClosed(), new Promise((resolve) => setTimeout(resolve, 60))]);
    if (!wire.peerGone) await ACTS['ok']?.(request, wire);
  },
  silent: (_request, wire) => wire.waitClosed().then(() => undefined),
  shortBody: async (_request, wire) => {
    await wire.write('HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 50\r\n\r\n{"x"');
    wire.end();
  },
};
const FAULTS = Object.keys(ACTS).filter((act) => act !== 'ok');
const PATHS = ['/v1/chat/completions', '/v1/completions', '/v1/responses', '/v1/messages', '/v1/embeddings'];

/** Settles when the client has a whole response, or `enough` bytes, or its connection ended. */
function heard(client: RawClient, enough: number): Promise<void> {
  return new Promise((resolve) => {
    const look = () => {
      const over = client.ending !== 'open' || client.received.length >= enough;
      if (over || client.responses()[0]?.complete === true) resolve();
    };
    client.socket.on('data', look).on('close', look).on('end', look);
    look();
  });
}

class Soak {
  private readonly chance = seededRandom(SEED);
  private left = 0;
  readonly statuses = new Map<string, number>();

  constructor(readonly harness: RouterHarness) {}

  /** Sends `count` requests from all clients together. */
  async run(count: number): Promise<void> {
    this.left = count;
    await Promise.all(Array.from({ length: CLIENTS }, () => this.client()));
    await waitFor(() => this.harness.router.exchanges.size === 0, { deadlineMs: 20_000 });
  }

  private async client(): Promise<void> {
    while (this.left-- > 0) {
      await this.one();
      // What tests keep to look at would grow with every request.
      this.harness.logLines.length = 0;
      for (const engine of this.harness.engines) engine.requests.length = engine.connections.length = 0;
    }
  }

  private pick<T>(list: readonly T[]): T {
    return list[Math.floor(this.chance() * list.length)] as T;
  }

  private async one(): Promise<void> {
    const act = this.chance() < 0.2 ? this.pick(FAULTS) : 'ok';
    const leaves = this.chance() < 0.1;
    const stream = this.chance() < 0.6;
    const words = `${this.left} ${this.chance()} `;
    const prompt = words.repeat(Math.ceil(PROMPT_BYTES / words.length));
    const body = { model: 'm1', stream, act, prompt, input: prompt, max_tokens: 8 };
    const path = this.pick(PATHS);
    const client = await RawClient.connect(this.harness.port);
    await client.post(path, { ...body, messages: [{ role: 'user', content: prompt }] });
    await heard(client, leaves ? Math.floor(this.chance() * 600) : Number.POSITIVE_INFINITY);
    const status = leaves ? 'left' : String(client.responses()[0]?.status);
    this.statuses.set(status, (this.statuses.get(status) ?? 0) + 1);
    if (leaves && this.chance() < 0.5) client.rst();
    else client.destroy();
  }
}

/** Memory after everything that can be freed was. */
async function memory(): Promise<{ heapMib: number; residentMib: number }> {
  for (let i = 0; i < 3; i++) {
    collectGarbage();
    await new Promise((resolve) => setImmediate(resolve));
  }
  const { heapUsed, arrayBuffers, rss } = process.memoryUsage();
  return { heapMib: (heapUsed + arrayBuffers) / MIB, residentMib: rss / MIB };
}

const idleSockets = (harness: RouterHarness) =>
  waitFor(() => harness.engines.every((engine) => engine.openSockets === 0), { deadlineMs: 10_000 });

// Proxies of this kind grew with each request, by a prefix tree without bound, by unread bodies that pinned their sockets,
// by timers nobody cancelled; it showed after hours.
it(`${REQUESTS} requests with faults, retries, hedges and leaving clients leave nothing behind`, async () => {
  const socketsBefore = process.getActiveResourcesInfo().filter((kind) => kind.startsWith('TCP')).length;
  const clock = new CountingClock();
  const harness = await RouterHarness.start({
    engines: 3,
    clock,
    endpoints: Array.from({ length: 3 }, () => ({ maxConcurrency: 7 })),
    deadlines: { firstToken: 150, firstTokenPer1kTokens: 0, idle: 150, queue: 1_000 },
    profile: { policy: 'prefixAware', hedging: { after: 30, budget: 0.1 } },
    prepare: (engines) => {
      for (const engine of engines) {
        engine.onRequest((request, wire) =>
          ACTS[/"act":"(\w+)"/.exec(request.body.toString('latin1', 0, 100))?.[1] ?? 'ok']?.(request, wire),
        );
      }
    },
  });
  const timersBefore = clock.live.size;
  const soak = new Soak(harness);
  await soak.run(WARM_UP);
  const before = await memory();
  await soak.run(REQUESTS - WARM_UP);
  await idleSockets(harness);
  const after = await memory();
  const seen = [...soak.statuses].map(([status, count]) => `${status}: ${count}`).join(', ');
  process.stderr.write(
    `${seen}; heap ${before.heapMib.toFixed(1)} -> ${after.heapMib.toFixed(1)} MiB, ` +
      `resident ${before.residentMib.toFixed(0)} -> ${after.residentMib.toFixed(0)} MiB\n`,
  );

  for (const { inflight, outstandingTokens } of harness.router.endpoints()) {
    expect({ inflight, outstandingTokens }).toEqual({ inflight: 0, outstandingTokens: 0 });
  }
  expect(harness.router.bodies.heldBytes).toBe(0);
  expect(await harness.metric('llmgw_queue_depth{model="m1"}')).toBe(0);
  // Two timers a router may have for itself after the last request: to write its access log, to look at its queues again.
  expect(clock.live.size).toBeLessThanOrEqual(timersBefore + 2);
  await waitFor(() => clock.live.size <= timersBefore, { what: 'no timer to be left' });
  const metrics = await harness.metrics();
  const sum = (name: string) =>
    [...metrics.matchAll(new RegExp(`^${name}\\{.*\\} (\\d+)$`, 'gm'))].reduce(
      (all, [, n]) => all + Number(n),
      0,
    );
  expect(sum('llmgw_requests_total')).toBeGreaterThan(REQUESTS * 0.95);
  expect(sum('llmgw_requests_total')).toBeLessThanOrEqual(REQUESTS);
  expect(sum('llmgw_retries_total')).toBeGreaterThan(REQUESTS / 100);
  expect(metrics).toMatch(/llmgw_attempts_total\{[^}]*outcome="hedge_lost"\} [1-9]/);
  expect(after.heapMib).toBeLessThan(before.heapMib * 1.2 + 5);
  expect(after.residentMib).toBeLessThan(before.residentMib * 1.3 + 50);

  await harness.stop();
  expect(clock.live.size).toBe(0);
  const sockets = () => process.getActiveResourcesInfo().filter((kind) => kind.startsWith('TCP'));
  await waitFor(() => sockets().length <= socketsBefore, { what: 'every socket to be gone' });
});
