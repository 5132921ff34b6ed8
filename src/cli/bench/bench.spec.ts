import { createServer, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { SimEngine } from '../../engines/sim/sim-engine.js';
import { systemClock } from '../../shared/clock.js';
import { waitFor } from '../../../test/support/wait-for.js';
import { CompletionClient } from './completion-client.js';
import { parseFaultPlan, pickFault } from './faults.js';
import { LogHistogram } from './log-histogram.js';
import { benchReport, reportLines } from './report.js';
import { BenchRun, type BenchPlan } from './run-bench.js';
import { ask, SHAPES, type ShapeName } from './shapes.js';

const plan = (changes: Partial<BenchPlan> = {}): BenchPlan => ({
  shape: 'chat',
  seed: 1,
  faults: [],
  concurrency: 4,
  requests: 12,
  maxTokens: 6,
  ...changes,
});

const clients: CompletionClient[] = [];
const clientOf = (url: string): CompletionClient => {
  const client = new CompletionClient({
    url: new URL(url),
    model: 'm1',
    timeoutMs: 10_000,
    clock: systemClock,
  });
  clients.push(client);
  return client;
};
afterEach(() => clients.splice(0).forEach((client) => client.close()));

describe('a load test against an engine', () => {
  const engine = new SimEngine({ models: ['m1'], seed: 5, ttftMs: 5, tpotMs: 2, slots: 4 });
  let url = '';
  beforeAll(async () => {
    url = `http://127.0.0.1:${await engine.start({ port: 0 })}`;
  });
  afterAll(() => engine.stop());

  const bench = async (changes: Partial<BenchPlan> = {}) =>
    benchReport(await new BenchRun(plan(changes), clientOf(url), systemClock).run(), false);

  it('counts requests, tokens and times', async () => {
    const report = await bench();
    expect(report).toMatchObject({ requests: 12, failures: 0, results: { ok: 12 }, tokensFrom: 'usage' });
    expect(report.completionTokens).toBe(72);
    expect(report.firstToken?.count).toBe(12);
    expect(report.total?.count).toBe(12);
    expect(report.firstToken!.p50Ms).toBeGreaterThanOrEqual(4);
    expect(report.firstToken!.p99Ms).toBeLessThanOrEqual(report.total!.maxMs);
    expect(report.interToken!.count).toBeGreaterThan(12);
    const text = reportLines(report).join('\n');
    expect(text).toMatch(/^12 requests in [\d.]+ s: [\d.]+ requests\/s, [\d.]+ tokens\/s/);
    expect(text).toMatch(/^ok +12$/m);
  });

  it('takes a URL with /v1 as well', async () => {
    const run = new BenchRun(plan({ requests: 1 }), clientOf(`${url}/v1/`), systemClock);
    expect((await run.run()).failures).toBe(0);
  });

  it('shows what came from prefix caches', async () => {
    const report = await bench({ shape: 'shared-prefix', requests: 40, maxTokens: 2 });
    expect(report.cachedShare).toBeGreaterThan(0.4);
    expect(reportLines(report)[0]).toContain('% of the prompt from caches');
  });

  it('tells failures apart by what they are', async () => {
    const report = await bench({
      concurrency: 1,
      requests: 40,
      faults: parseFaultPlan(
        'status=503@30%;clean-cut-after-events=3@20%;error-mid=2@20%;reset-after-events=2@20%',
      ),
    });
    const names = Object.keys(report.results).join(' ');
    expect(names).toMatch(/\b503\b/);
    expect(names).toContain('in stream: ');
    expect(names).toContain('stream_without_end');
    expect(names).toMatch(/stream_cut|ECONNRESET/);
    expect(report.failures).toBe(40 - (report.results['ok'] ?? 0));
  });

  it('leaves in the middle, and that is no failure', async () => {
    const report = await bench({ requests: 8, maxTokens: 200, faults: parseFaultPlan('cancel=3@100%') });
    expect(report).toMatchObject({ failures: 0, results: { cancelled: 8 }, completionTokens: 24 });
    expect(report.total).toBeNull();
  });

  it('reads slowly and still gets everything', async () => {
    const report = await bench({ requests: 2, faults: parseFaultPlan('slow-reader=20@100%') });
    expect(report).toMatchObject({ failures: 0, results: { ok: 2 }, completionTokens: 12 });
  });

  it('broken off, reports what it has', async () => {
    const run = new BenchRun(plan({ requests: 1_000, maxTokens: 20 }), clientOf(url), systemClock);
    const running = run.run();
    await waitFor(() => run.result.completed >= 4);
    run.stop();
    const report = benchReport(await running, true);
    expect(report.requests).toBeGreaterThanOrEqual(4);
    expect(report.requests).toBeLessThan(1_000);
    expect(report.failures).toBe(0);
    expect(reportLines(report)[0]).toContain(', interrupted');
  });
});

describe('an open loop', () => {
  let server: Server;
  const waiting: ServerResponse[] = [];
  let held = true;
  const answer = (response: ServerResponse) => {
    response.setHeader('content-type', 'text/event-stream');
    response.end('data: {"choices":[{"delta":{"content":"x"}}]}\n\ndata: [DONE]\n\n');
  };
  beforeAll(async () => {
    server = createServer((request, response) => {
      request.resume().on('end', () => (held ? void waiting.push(response) : answer(response)));
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  });
  afterAll(() => void server.close());

  // A generator that waits for answers sends nothing while the server hangs, and its report looks fine.
  it('goes on sending while nothing is answered, and counts the wait from when each was due', async () => {
    const { port } = server.address() as AddressInfo;
    const run = new BenchRun(
      plan({ ratePerSecond: 200, requests: 40, concurrency: 1 }),
      clientOf(`http://127.0.0.1:${port}`),
      systemClock,
    );
    const running = run.run();
    await waitFor(() => waiting.length === 40);
    held = false;
    waiting.forEach(answer);
    const report = benchReport(await running, false);
    expect(report).toMatchObject({ requests: 40, failures: 0, tokensFrom: 'events', completionTokens: 40 });
    // The first was due when the run began and answered after the last was sent, 39 intervals later.
    expect(report.firstToken!.maxMs).toBeGreaterThanOrEqual(195);
  });
});

it('nobody there: every request says so, and none was reached', async () => {
  const result = await new BenchRun(plan({ requests: 3 }), clientOf('http://127.0.0.1:1'), systemClock).run();
  expect(Object.fromEntries(result.results)).toEqual({ ECONNREFUSED: 3 });
  expect([result.failures, result.reached]).toEqual([3, false]);
});

describe('shapes', () => {
  it.each(Object.keys(SHAPES) as ShapeName[])('%s asks the same for the same seed and number', (shape) => {
    for (const index of [0, 1, 7, 31]) {
      expect(ask(shape, index, 3)).toEqual(ask(shape, index, 3));
      expect(ask(shape, index, 3).messages.at(-1)?.role).toBe('user');
    }
    expect(ask(shape, 5, 3)).not.toEqual(ask(shape, 5, 4));
  });

  it('conversation: a later turn begins with all of the turns before', () => {
    const [first, second] = [ask('conversation', 4, 1), ask('conversation', 5, 1)];
    expect(second.messages.slice(0, 1)).toEqual(first.messages);
    expect(second.messages).toHaveLength(3);
  });

  it('shared-prefix: eight system prompts and no more', () => {
    const systems = Array.from(
      { length: 200 },
      (_, index) => ask('shared-prefix', index, 1).messages[0]?.content,
    );
    expect(new Set(systems).size).toBe(8);
  });
});

describe('a fault plan', () => {
  it('reads names, arguments and shares', () => {
    expect(parseFaultPlan('cancel=5@10%; slow-reader ;stall=2,500@1%')).toEqual([
      { share: 0.1, does: { cancelAfterTokens: 5 } },
      { share: 0.1, does: { readPauseMs: 200 } },
      { share: 0.01, does: { directive: '[[fault:stall=2,500]]' } },
    ]);
  });

  it.each([
    ['cancel=x', /expected a whole number/],
    ['cancel@5', /expected a percentage/],
    ['UPPER', /expected NAME/],
    ['a@60%;b@60%', /more than 100%/],
  ])('refuses %s', (text, message) => {
    expect(() => parseFaultPlan(text)).toThrow(message);
  });

  it('gives each fault its share', () => {
    const faults = parseFaultPlan('cancel@20%;hang@30%');
    const picked = Array.from({ length: 100 }, (_, at) => pickFault(faults, () => at / 100));
    expect(picked.filter(({ cancelAfterTokens }) => cancelAfterTokens !== undefined)).toHaveLength(20);
    expect(picked.filter(({ directive }) => directive !== undefined)).toHaveLength(30);
  });
});

describe('the histogram', () => {
  it('is off by one per cent at most, whatever the size', () => {
    const histogram = new LogHistogram();
    for (let ms = 1; ms <= 10_000; ms++) histogram.add(ms);
    for (const p of [0.01, 0.5, 0.9, 0.99]) {
      expect(Math.abs(histogram.quantile(p)! / (p * 10_000) - 1)).toBeLessThan(0.011);
    }
    expect(histogram.maxMs).toBe(10_000);
    expect(histogram.meanMs).toBe(5_000.5);
  });

  it('knows nothing before it has seen something', () => {
    expect(new LogHistogram().quantile(0.5)).toBeUndefined();
  });

  it('keeps what is out of its range at its ends', () => {
    const histogram = new LogHistogram();
    histogram.add(0);
    histogram.add(1e12);
    expect([histogram.quantile(0.5), histogram.maxMs, histogram.count]).toEqual([0.01, 1e12, 2]);
  });
});
