import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { LearnedRates } from '../request/learned-rates.js';
import type { Candidate, ChooseContext, RequestFacts } from './candidate.js';
import { EndpointLoad } from './endpoint-load.js';
import { createBalancer } from './policies.js';
import { PrefixIndex } from './prefix-index.js';
import { hashPrompt } from './prompt-chain.js';
import { mix32 } from './text-hash.js';

const TOKEN_BYTES = 4;

function endpoint(id: string, changes: Partial<Candidate> = {}): Candidate {
  return {
    id,
    generation: 1,
    models: new Set(['m']),
    pool: 'static',
    weight: 1,
    maxConcurrency: Number.POSITIVE_INFINITY,
    draining: false,
    load: new EndpointLoad(),
    rates: new LearnedRates(),
    health: { verdict: () => 'serving' },
    ...changes,
  };
}

/** Made-up text of `tokens` tokens that differs from that of every other seed. */
function text(seed: number, tokens: number): Uint8Array {
  return new Uint8Array(Uint32Array.from({ length: tokens }, (_, at) => mix32(seed * 1_000_003 + at)).buffer);
}

function ask(...parts: Uint8Array[]): RequestFacts {
  const bytes = parts.reduce((sum, part) => sum + part.length, 0);
  const ranges = parts.map((part) => ({ bytes: part, from: 0, to: part.length }));
  return { model: 'm', promptTokens: bytes / TOKEN_BYTES, outputTokens: 100, chain: hashPrompt(ranges, 'm') };
}

/** A router of four endpoints, or as many as named. */
function fleet(ids = ['a', 'b', 'c', 'd'], changes: readonly Partial<Candidate>[] = []) {
  const index = new PrefixIndex();
  const balancer = createBalancer('prefixAware', index);
  const endpoints = ids.map((id, i) => endpoint(id, changes[i]));
  let lot = 1;
  const context: ChooseContext = {
    nowMs: 0,
    random: () => ((lot = mix32(lot + 0x9e3779b9)) + 0.5) / 2 ** 32,
    tried: [],
    explain: false,
  };
  const send = (request: RequestFacts, among = endpoints) => {
    const choice = balancer.choose(among, request, context);
    if (choice.endpoint === undefined) throw new Error(choice.because);
    const { endpoint: to, predictedCachedTokens } = choice;
    const uncached = request.promptTokens - predictedCachedTokens;
    const lease = to.load.acquire(uncached, request.outputTokens, 0, predictedCachedTokens);
    return { to, lease, choice };
  };
  const inFlight = () => endpoints.map((e) => e.load.requests);
  return { index, balancer, endpoints, context, send, inFlight };
}

describe('one hot prefix', () => {
  const system = text(1, 1_000);
  const question = (i: number) => ask(system, text(100 + i, 20 + (i % 30)));

  it('400 at once: no endpoint above 1.25 x mean + 2 at any time', () => {
    const { send, inFlight } = fleet();
    for (let i = 0; i < 400; i++) {
      send(question(i));
      const counts = inFlight();
      const mean = counts.reduce((sum, n) => sum + n, 0) / counts.length;
      expect(Math.max(...counts)).toBeLessThanOrEqual(1.25 * mean + 2);
    }
  });

  it('one after the other, all go to one endpoint, also after a burst spread the prefix everywhere', () => {
    const { send } = fleet();
    const share = (from: number, n: number) => {
      const got = new Map<string, number>();
      for (let i = from; i < from + n; i++) {
        const { to, lease } = send(question(i));
        lease.prefilled(0);
        lease.release();
        got.set(to.id, (got.get(to.id) ?? 0) + 1);
      }
      return Math.max(...got.values()) / n;
    };
    expect(share(0, 100)).toBe(1);
    const burst = Array.from({ length: 100 }, (_, i) => send(question(1_000 + i)));
    for (const { lease } of burst) lease.release();
    expect(share(2_000, 200)).toBeGreaterThanOrEqual(0.9);
  });

  it('leaves its home when that is full or gone, for the same other one each time, and comes back', () => {
    const { send, endpoints } = fleet();
    let asked = 0;
    const once = (among = endpoints) => {
      const { to, lease } = send(question(asked++), among);
      lease.release();
      return to.id;
    };
    const burst = Array.from({ length: 40 }, (_, i) => send(question(1_000 + i)));
    for (const { lease } of burst) lease.release();
    const home = once();
    const without = endpoints.filter((e) => e.id !== home);
    const second = once(without);
    for (let i = 0; i < 20; i++) expect(once(without)).toBe(second);
    expect(once()).toBe(home);
  });
});

describe('choice', () => {
  it('goes where the prefix is, and says what it expects there', () => {
    const { send, endpoints } = fleet();
    const document = text(3, 4_000);
    const first = send(ask(document, text(4, 50)));
    first.lease.release();
    const again = send(ask(document, text(5, 50)));
    expect(again.to).toBe(first.to);
    expect(first.choice.predictedCachedTokens).toBe(0);
    expect(again.choice.predictedCachedTokens).toBeGreaterThan(3_700);
    expect(again.choice.predictedCachedTokens).toBeLessThanOrEqual(4_000);
    expect(endpoints.filter((e) => e.load.requests > 0)).toHaveLength(1);
  });

  it('computes a prefix anew elsewhere when waiting for its home costs more', () => {
    const { send, endpoints } = fleet();
    const document = text(3, 1_000);
    const { to: home, lease } = send(ask(document));
    lease.release();
    home.load.acquire(20_000, 10, 0);
    for (const other of endpoints) if (other !== home) other.load.acquire(0, 10, 0, 19_000);
    expect(send(ask(document)).to).not.toBe(home);
  });

  it('forgets what a restarted replica had cached', () => {
    const { send, balancer, context, endpoints } = fleet();
    const document = text(3, 4_000);
    const { to, lease } = send(ask(document));
    lease.release();
    const restarted = endpoints.map((e) => (e === to ? endpoint(e.id, { generation: 2 }) : e));
    const { candidates } = balancer.choose(restarted, ask(document), { ...context, explain: true });
    expect(candidates?.map((c) => c.predictedCachedTokens)).toEqual([0, 0, 0, 0]);
  });

  it('does not mix models or adapters with the same text', () => {
    const bytes = text(3, 1_000);
    const range = [{ bytes, from: 0, to: bytes.length }];
    const words = [hashPrompt(range, 'm'), hashPrompt(range, 'n'), hashPrompt(range, 'm', 'lora')].map(
      (chain) => chain.words[0],
    );
    expect(new Set(words).size).toBe(3);
  });

  it('prefers the faster replica once it has learned which one that is', () => {
    const { send, endpoints } = fleet(['slow', 'fast']);
    for (let i = 0; i < 200; i++) {
      endpoints[0]!.rates.firstToken(1_000 + i, 0.02 + (1_000 + i) / 2_000);
      endpoints[1]!.rates.firstToken(1_000 + i, 0.02 + (1_000 + i) / 20_000);
    }
    for (let i = 0; i < 10; i++) {
      const { to, lease } = send(ask(text(i, 2_000)));
      expect(to.id).toBe('fast');
      lease.release();
    }
  });

  it('prefers the replica that writes its answers faster, where both write equally much', () => {
    const { send, endpoints } = fleet(['slow', 'fast']);
    for (const e of endpoints) e.load.acquire(0, 5_000, 0).prefilled(0);
    for (let i = 0; i < 200; i++) endpoints[0]!.rates.decoded(100, 10);
    for (let i = 0; i < 200; i++) endpoints[1]!.rates.decoded(100, 1);
    for (let i = 0; i < 10; i++) {
      const { to, lease } = send(ask(text(i, 500)));
      expect(to.id).toBe('fast');
      lease.release();
    }
  });

  it('takes what others send to an engine into account', () => {
    const { send, endpoints } = fleet(['a', 'b']);
    endpoints[0]!.load.scraped({ runningRequests: 20, waitingRequests: 30 }, 0);
    for (let i = 0; i < 10; i++) expect(send(ask(text(i, 500))).to.id).toBe('b');
  });

  it('spreads prompts without a past evenly, alone or at once', () => {
    const { send, inFlight } = fleet();
    for (let i = 0; i < 40; i++) send(ask(text(i, 500)));
    for (const n of inFlight()) expect(n).toBe(10);
    const { send: sendOne } = fleet();
    const got = new Set<string>();
    for (let i = 0; i < 40; i++) {
      const { to, lease } = sendOne({ model: 'm', promptTokens: 10, outputTokens: 10 });
      lease.release();
      got.add(to.id);
    }
    expect(got.size).toBe(4);
  });
});

describe('bounded load', () => {
  it('whatever the mix of prefixes and sizes, nobody is given more while above 2 x the mean', () => {
    const step = fc.record({
      prefix: fc.nat(3),
      prefixTokens: fc.constantFrom(0, 300, 3_000),
      ownTokens: fc.integer({ min: 1, max: 3_000 }),
      releases: fc.nat(3),
    });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const { send, endpoints } = fleet();
        const open: ReturnType<typeof send>[] = [];
        steps.forEach(({ prefix, prefixTokens, ownTokens, releases }, i) => {
          const request = ask(text(prefix, prefixTokens), text(1_000 + i, ownTokens));
          const before = endpoints.map((e) => e.load.heldTokens);
          const sent = send(request);
          open.push(sent);
          const at = endpoints.indexOf(sent.to);
          const size = request.promptTokens + request.outputTokens;
          const mean = (before.reduce((sum, n) => sum + n, 0) + size) / endpoints.length;
          if (sent.to.load.requests > 2) expect(before[at]).toBeLessThanOrEqual(2 * mean);
          for (let n = 0; n < releases; n++) open.splice(i % open.length, 1)[0]?.lease.release();
        });
        for (const { lease } of open) lease.release();
        expect(endpoints.map((e) => e.load.requests)).toEqual([0, 0, 0, 0]);
      }),
      { numRuns: 60 },
    );
  });

  it('whatever caches, speeds and loads are, nobody is given more while it has twice the mean to compute', () => {
    const state = fc.record({
      uncached: fc.integer({ min: 0, max: 20_000 }),
      cached: fc.integer({ min: 0, max: 60_000 }),
      requests: fc.nat(3),
      tokensPerSecond: fc.constantFrom(500, 8_000, 100_000),
      weight: fc.constantFrom(1, 1, 3),
    });
    const step = fc.record({ prefix: fc.nat(2), ownTokens: fc.integer({ min: 1, max: 2_000 }) });
    fc.assert(
      fc.property(
        fc.array(state, { minLength: 2, maxLength: 6 }),
        fc.array(step, { maxLength: 30 }),
        (states, steps) => {
          const { send, endpoints } = fleet(
            states.map((_, i) => `e${i}`),
            states.map(({ weight }) => ({ weight })),
          );
          states.forEach(({ uncached, cached, requests, tokensPerSecond }, i) => {
            const { load, rates } = endpoints[i]!;
            for (let n = 0; n < requests; n++) load.acquire(uncached, 100, 0, cached);
            for (let n = 0; n < 50; n++) rates.firstToken(1_000 + n, (1_000 + n) / tokensPerSecond);
          });
          steps.forEach(({ prefix, ownTokens }, i) => {
            const request = ask(text(prefix, 3_000), text(1_000 + i, ownTokens));
            const due = endpoints.map((e) => e.load.outstandingTokens);
            const { to } = send(request);
            const size = request.promptTokens + request.outputTokens;
            const share = to.weight / endpoints.reduce((sum, e) => sum + e.weight, 0);
            const fair = (due.reduce((sum, n) => sum + n, 0) + size) * share;
            expect(due[endpoints.indexOf(to)]).toBeLessThanOrEqual(2 * Math.max(fair, 2 * size));
          });
        },
      ),
      { numRuns: 150 },
    );
  });
});
