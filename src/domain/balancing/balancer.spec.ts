import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { LearnedRates } from '../request/learned-rates.js';
import { POLICY_NAMES } from './candidate.js';
import type { Candidate, ChooseContext, HealthVerdict, PolicyName, RequestFacts } from './candidate.js';
import { EndpointLoad } from './endpoint-load.js';
import { prospectOf } from './balancer.js';
import { createBalancer } from './policies.js';
import { PrefixIndex } from './prefix-index.js';
import { mix32 } from './text-hash.js';

interface Fake extends Candidate {
  state: HealthVerdict;
  draining: boolean;
}

function endpoint(id: string, changes: Partial<Candidate> & { state?: HealthVerdict } = {}): Fake {
  const fake: Fake = {
    id,
    generation: 1,
    models: new Set(['m']),
    pool: 'static',
    weight: 1,
    maxConcurrency: Number.POSITIVE_INFINITY,
    draining: false,
    load: new EndpointLoad(),
    rates: new LearnedRates(),
    health: { verdict: () => fake.state },
    state: 'serving',
    ...changes,
  };
  return fake;
}

const REQUEST: RequestFacts = { model: 'm', promptTokens: 100, outputTokens: 100 };

function balancerOf(policy: PolicyName) {
  return createBalancer(policy, new PrefixIndex(1 << 20));
}

function context(changes: Partial<ChooseContext> = {}): ChooseContext {
  let state = 1;
  const random = () => (state = mix32(state + 0x9e3779b9)) / 2 ** 32;
  return { nowMs: 0, random, tried: [], explain: false, ...changes };
}

describe.each(POLICY_NAMES)('filters under %s', (policy) => {
  const cases: [string, Partial<Candidate> & { state?: HealthVerdict }, string][] = [
    ['another model', { models: new Set(['other']) }, 'not_serving_model'],
    ['draining', { draining: true }, 'draining'],
    ['weight 0', { weight: 0 }, 'zero_weight'],
    ['ejected', { state: 'ejected' }, 'ejected'],
    ['cooling down', { state: 'cooling_down' }, 'cooling_down'],
    ['trial running', { state: 'trial_running' }, 'trial_running'],
    ['at capacity', { maxConcurrency: 0 }, 'at_capacity'],
  ];
  it.each(cases)('%s: never chosen while another serves, with its reason', (_, changes, reason) => {
    const bad = endpoint('bad', changes);
    const good = endpoint('good');
    const choice = balancerOf(policy).choose([bad, good], REQUEST, context({ explain: true }));
    expect(choice.endpoint).toBe(good);
    expect(choice.candidates?.map((c) => c.rejected)).toEqual([reason, undefined]);
  });

  it('excludes what already failed this request', () => {
    const [a, b] = [endpoint('a'), endpoint('b')];
    const balancer = balancerOf(policy);
    const choice = balancer.choose([a, b], REQUEST, context({ tried: ['a'], explain: true }));
    expect(choice.endpoint).toBe(b);
    expect(choice.candidates?.[0]?.rejected).toBe('excluded_by_retry');
    expect(balancer.choose([a, b], REQUEST, context({ tried: ['a', 'b'] }))).toMatchObject({
      endpoint: undefined,
      because: 'all_tried',
    });
  });

  it('says at_capacity when waiting would help, no_endpoint when it would not', () => {
    const full = endpoint('a', { maxConcurrency: 1 });
    full.load.acquire(1, 1, 0);
    const balancer = balancerOf(policy);
    expect(balancer.choose([full], REQUEST, context()).because).toBe('at_capacity');
    expect(balancer.choose([], REQUEST, context()).because).toBe('no_endpoint');
    expect(balancer.choose([endpoint('a', { draining: true })], REQUEST, context()).because).toBe(
      'no_endpoint',
    );
  });

  it('tries ejected endpoints rather than making an outage of its own', () => {
    const out = [endpoint('a', { state: 'ejected' }), endpoint('b', { state: 'cooling_down' })];
    const choice = balancerOf(policy).choose(out, REQUEST, context());
    expect(choice.endpoint).toBeDefined();
    expect(choice.because).toBe('last_resort');
  });

  it('does not fall back on ejected endpoints while a serving one is only full or tried', () => {
    const full = endpoint('full', { maxConcurrency: 0 });
    const out = endpoint('out', { state: 'ejected' });
    const balancer = balancerOf(policy);
    expect(balancer.choose([full, out], REQUEST, context()).because).toBe('at_capacity');
    expect(balancer.choose([endpoint('a'), out], REQUEST, context({ tried: ['a'] })).because).toBe(
      'all_tried',
    );
  });

  it('sends a first attempt to a due trial, never a retry', () => {
    const back = endpoint('back', { state: 'trial_due' });
    const good = endpoint('good');
    const balancer = balancerOf(policy);
    expect(balancer.choose([good, back], REQUEST, context())).toMatchObject({
      endpoint: back,
      because: 'trial',
    });
    expect(balancer.choose([good, back], REQUEST, context({ tried: ['x'] })).endpoint).toBe(good);
  });

  it('keeps to the pool, and leaves it only when it cannot serve and may be left', () => {
    const stable = endpoint('stable');
    const canary = endpoint('canary', { pool: 'canary' });
    const balancer = balancerOf(policy);
    const wanted = { ...REQUEST, pool: 'canary' };
    expect(balancer.choose([stable, canary], wanted, context()).endpoint).toBe(canary);
    canary.state = 'ejected';
    expect(balancer.choose([stable, canary], wanted, context()).endpoint).toBe(stable);
    const strict = { ...wanted, poolRequired: true };
    expect(balancer.choose([stable, canary], strict, context()).because).toBe('last_resort');
    canary.draining = true;
    expect(balancer.choose([stable, canary], strict, context()).because).toBe('no_endpoint');
  });
});

describe('explain', () => {
  it('lists every candidate with its load, and nothing unless asked', () => {
    const [a, b] = [endpoint('a'), endpoint('b')];
    a.load.acquire(50, 70, 0);
    const balancer = balancerOf('leastLoad');
    expect(balancer.choose([a, b], REQUEST, context()).candidates).toBeUndefined();
    const { candidates } = balancer.choose([a, b], REQUEST, context({ explain: true }));
    expect(candidates).toEqual([
      expect.objectContaining({
        endpoint: 'a',
        outstandingRequests: 1,
        outstandingTokens: 120,
        rejected: 'costlier',
      }),
      expect.objectContaining({ endpoint: 'b', outstandingRequests: 0, rejected: undefined }),
    ]);
  });
});

/** Sends `n` requests that never end and counts who got them. */
function spread(policy: PolicyName, endpoints: Fake[], n: number, sessions = false) {
  const balancer = balancerOf(policy);
  const at = context();
  const counts = new Map(endpoints.map((e) => [e.id, 0]));
  for (let i = 0; i < n; i++) {
    const request = sessions ? { ...REQUEST, sessionKey: `s${i}` } : REQUEST;
    const { endpoint: chosen } = balancer.choose(endpoints, request, at);
    chosen!.load.acquire(REQUEST.promptTokens, REQUEST.outputTokens, 0);
    counts.set(chosen!.id, counts.get(chosen!.id)! + 1);
  }
  return counts;
}

describe('weights', () => {
  it.each(['roundRobin', 'leastLoad', 'powerOfTwo', 'sessionAffinity'] as const)(
    '%s shares 3:1 by weight',
    (policy) => {
      const endpoints = [endpoint('heavy', { weight: 3 }), endpoint('light')];
      const share = spread(policy, endpoints, 400, true).get('heavy')! / 400;
      expect(share).toBeGreaterThan(0.68);
      expect(share).toBeLessThan(0.82);
    },
  );

  it('roundRobin interleaves: 5:1:1 never serves the heavy one five times in a row', () => {
    const endpoints = [endpoint('a', { weight: 5 }), endpoint('b'), endpoint('c')];
    const balancer = balancerOf('roundRobin');
    const order = Array.from(
      { length: 7 },
      () => balancer.choose(endpoints, REQUEST, context()).endpoint!.id,
    );
    expect(order).toEqual(['a', 'a', 'b', 'a', 'c', 'a', 'a']);
  });
});

describe('sessionAffinity', () => {
  const endpoints = () => ['a', 'b', 'c', 'd'].map((id) => endpoint(id));

  it('keeps a session where it is, and moves only the keys of an endpoint that goes', () => {
    const all = endpoints();
    const balancer = balancerOf('sessionAffinity');
    const home = (i: number, among: Fake[]) =>
      balancer.choose(among, { ...REQUEST, sessionKey: `s${i}` }, context()).endpoint!.id;
    for (let i = 0; i < 200; i++) {
      const before = home(i, all);
      expect(home(i, all)).toBe(before);
      const without = home(i, all.slice(1));
      if (before !== 'a') expect(without).toBe(before);
    }
  });

  it('400 requests of one key at once stay within 1.25 x mean + 2, overflow in a stable order', () => {
    const all = endpoints();
    const balancer = balancerOf('sessionAffinity');
    const request = { ...REQUEST, sessionKey: 'everybody' };
    for (let i = 0; i < 400; i++) {
      const { endpoint: chosen } = balancer.choose(all, request, context());
      chosen!.load.acquire(1, 1, 0);
      const total = all.reduce((sum, e) => sum + e.load.requests, 0);
      for (const e of all) expect(e.load.requests).toBeLessThanOrEqual((1.25 * total) / 4 + 2);
    }
  });
});

describe('properties', () => {
  const shape = fc.record({
    weight: fc.integer({ min: 0, max: 4 }),
    requests: fc.integer({ min: 0, max: 5 }),
    maxConcurrency: fc.integer({ min: 0, max: 6 }),
    draining: fc.boolean(),
    state: fc.constantFrom<HealthVerdict>('serving', 'ejected', 'cooling_down', 'trial_due', 'trial_running'),
    pool: fc.constantFrom('a', 'b'),
    tried: fc.boolean(),
  });

  it('a chosen endpoint passes every hard filter; nothing chosen means nobody passes', () => {
    fc.assert(
      fc.property(
        fc.array(shape, { maxLength: 8 }),
        fc.constantFrom(...POLICY_NAMES),
        fc.option(fc.constantFrom('a', 'b'), { nil: undefined }),
        (shapes, policy, pool) => {
          const endpoints = shapes.map((s, i) => {
            const fake = endpoint(`e${i}`, s);
            for (let n = 0; n < s.requests; n++) fake.load.acquire(10, 10, 0);
            return fake;
          });
          const tried = endpoints.filter((_, i) => shapes[i]!.tried).map((e) => e.id);
          const may = endpoints.filter(
            (e) => !e.draining && e.weight > 0 && !tried.includes(e.id) && e.load.requests < e.maxConcurrency,
          );
          const choice = balancerOf(policy).choose(
            endpoints,
            { ...REQUEST, pool },
            context({ tried, explain: true }),
          );
          expect(choice.candidates).toHaveLength(endpoints.length);
          if (choice.endpoint === undefined) {
            for (const e of may)
              expect(['ejected', 'cooling_down', 'trial_running', 'trial_due']).toContain(e.state);
            return;
          }
          expect(may).toContain(choice.endpoint);
          if (choice.because === 'ranked') expect(choice.endpoint.state).toBe('serving');
          expect(choice.candidates!.filter((c) => c.rejected === undefined)).toHaveLength(1);
        },
      ),
    );
  });
});

describe('prospectOf', () => {
  const state = fc.constantFrom<HealthVerdict>(
    'serving',
    'serving',
    'cooling_down',
    'ejected',
    'trial_due',
    'trial_running',
  );
  const one = fc.record({
    state,
    full: fc.boolean(),
    draining: fc.nat(5).map((n) => n === 0),
    weight: fc.constantFrom(0, 1, 2),
    pool: fc.constantFrom('blue', 'green', 'red'),
    tried: fc.nat(3).map((n) => n === 0),
  });

  it('finds a way exactly when the choice does, whatever the policy and the split', () => {
    const split = fc.record({
      pool: fc.constantFrom(undefined, 'blue'),
      otherSides: fc.constantFrom(undefined, ['green']),
      closedPools: fc.constantFrom<string[] | undefined>(undefined, ['red']),
    });
    fc.assert(
      fc.property(
        fc.array(one, { maxLength: 5 }),
        split,
        fc.constantFrom(...POLICY_NAMES),
        (many, pools, policy) => {
          const endpoints = many.map(({ full, state: verdict, draining, weight, pool }, i) =>
            endpoint(`e${i}`, { state: verdict, draining, weight, pool, maxConcurrency: full ? 0 : 5 }),
          );
          const tried = endpoints.filter((_, i) => many[i]?.tried === true).map(({ id }) => id);
          const prospect = prospectOf(endpoints, { ...REQUEST, ...pools }, { nowMs: 0, tried });
          const choice = balancerOf(policy).choose(endpoints, { ...REQUEST, ...pools }, context({ tried }));
          expect(prospect === 'now').toBe(choice.endpoint !== undefined);
          if (choice.endpoint === undefined && choice.because === 'at_capacity')
            expect(prospect).toBe('later');
          const left = endpoints.some(
            ({ id, weight, draining, pool }) =>
              !tried.includes(id) && weight > 0 && !draining && pools.closedPools?.includes(pool) !== true,
          );
          expect(prospect === 'never').toBe(!left);
        },
      ),
    );
  });
});
