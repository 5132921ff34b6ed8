import { afterEach, describe, expect, it } from 'vitest';
import { FakeEngine } from '../../test/support/fake-engine/fake-engine.js';
import { delta, DONE, fastClock, RouterHarness } from '../../test/support/router-harness.js';
import { waitFor } from '../../test/support/wait-for.js';
import type { RouteEndpoint, RouteModel } from './ports.js';
import { loadOf } from './scraper.js';

let harness: RouterHarness;
afterEach(() => harness.stop());

const OK = '{"ok":true}';
const state = (index: number) => harness.router.endpoints()[index];

describe('health', () => {
  // The HTTP side of an engine answered while nothing was generated: traffic went there for hours. Others, once marked
  // bad, never came back, or one hung check held up all the rest.
  it('is judged by work: an engine whose page is fine but which answers nothing is taken out', async () => {
    harness = await RouterHarness.start({
      engines: 2,
      deadlines: { firstToken: 200, firstTokenPer1kTokens: 0 },
      probes: 40,
    });
    const [dead, alive] = [harness.engine(0), harness.engine(1)];
    dead.onRequest((request, wire) =>
      request.method === 'GET' ? wire.respond(200, '') : wire.waitClosed().then(() => undefined),
    );
    alive.onRequest((_request, wire) => wire.respond(200, OK));
    for (let i = 0; i < 60 && state(0)?.state === 'up'; i++) {
      expect((await (await harness.chat({ max_tokens: 1 })).response()).status).toBe(200);
    }
    expect(state(0)).toMatchObject({ state: 'ejected', reason: 'first_token_timeouts' });
    expect(state(0)?.evidence.firstTokenTimeouts).toBeGreaterThanOrEqual(3);
    const posts = dead.requests.filter((request) => request.method === 'POST').length;
    await (await harness.chat()).response();
    expect(dead.requests.filter((request) => request.method === 'POST')).toHaveLength(posts);
  });

  it('comes back by a trial request when the time out is over', async () => {
    harness = await RouterHarness.start({ engines: 2, clock: fastClock(50) });
    let broken = true;
    for (const engine of harness.engines) {
      engine.onRequest((_request, wire) =>
        broken && engine === harness.engine(0) ? wire.rst() : wire.respond(200, OK),
      );
    }
    await waitFor(async () => {
      await (await harness.chat()).response();
      return state(0)?.state === 'ejected' || state(0)?.state === 'trial';
    });
    broken = false;
    await waitFor(async () => {
      expect((await (await harness.chat()).response()).status).toBe(200);
      return state(0)?.state === 'up';
    });
    expect(state(0)?.evidence.consecutiveFailures).toBe(0);
  });

  // Its page was fine all along, so no probe may bring it back: only work does, by one request at a time.
  it('of one that gave no first tokens comes back by a trial, and a failed trial keeps it out', async () => {
    harness = await RouterHarness.start({
      engines: 2,
      clock: fastClock(20),
      deadlines: { firstToken: 2_000, firstTokenPer1kTokens: 0 },
      probes: 500,
    });
    let dead = true;
    for (const engine of harness.engines) {
      engine.onRequest((request, wire) => {
        const silent = dead && engine === harness.engine(0) && request.method === 'POST';
        return silent ? wire.waitClosed().then(() => undefined) : wire.respond(200, OK);
      });
    }
    const posts = () => harness.engine(0).requests.filter(({ method }) => method === 'POST').length;
    const ask = async () =>
      expect((await (await harness.chat({ max_tokens: 1 })).response()).status).toBe(200);
    await waitFor(async () => {
      await ask();
      return state(0)?.state === 'ejected' && state(0)?.reason === 'first_token_timeouts';
    }, { deadlineMs: 15_000 }); // prettier-ignore
    const before = posts();
    await waitFor(async () => {
      await ask();
      return posts() > before && state(0)?.reason === 'failed_trial';
    }, { deadlineMs: 15_000 }); // prettier-ignore
    expect(posts()).toBe(before + 1);
    dead = false;
    await waitFor(async () => {
      await ask();
      return state(0)?.state === 'up';
    }, { deadlineMs: 15_000 }); // prettier-ignore
  }, 60_000);

  it('of one that hangs delays nobody else’s', async () => {
    harness = await RouterHarness.start({
      engines: 3,
      probes: 30,
      prepare: (engines) =>
        engines[1]?.onRequest((_request, wire) => wire.waitClosed().then(() => undefined)),
    });
    await waitFor(() => harness.engine(0).requests.length >= 5 && harness.engine(2).requests.length >= 5);
    expect(harness.engine(1).requests.length).toBe(1);
    expect(harness.engine(0).requests[0]).toMatchObject({ method: 'GET', target: '/health' });
  });

  it('of a busy engine is not judged by a probe', async () => {
    harness = await RouterHarness.start({ engines: 2, probes: 30 });
    let done = false;
    for (const engine of harness.engines) {
      engine.onRequest(async (request, wire) => {
        if (request.method === 'GET') return wire.respond(500, '');
        await wire.startStream();
        await wire.chunk(delta('a'));
        await wire.until(() => done);
        await wire.chunk(DONE);
        await wire.lastChunk();
      });
    }
    const client = await harness.chat({ stream: true });
    await client.waitForText('"a"');
    const busy = harness.router.endpoints().findIndex((endpoint) => endpoint.inflight > 0);
    await waitFor(() => harness.engine(busy).requests.filter((r) => r.method === 'GET').length >= 4);
    expect(state(busy)?.state).toBe('up');
    done = true;
    await client.response();
  });

  it('that fails with nothing running takes an endpoint out, and a model that has none left is not advertised', async () => {
    harness = await RouterHarness.start({ engines: 2, endpoints: [{}, { models: ['m2'] }], probes: 30 });
    const list = async () => {
      const client = await harness.connect();
      await client.get('/v1/models');
      const { data } = JSON.parse((await client.response()).body.toString()) as { data: { id: string }[] };
      return data.map((model) => model.id);
    };
    harness.engine(0).onRequest((_request, wire) => wire.respond(200, OK));
    expect(await list()).toEqual(['m1', 'm2']);
    const listenAgain = await harness.engine(1).refuseConnections();
    await waitFor(async () => (await list()).length === 1);
    expect(await list()).toEqual(['m1']);
    await listenAgain();
    await waitFor(async () => (await list()).length === 2);
  });

  // A machine that was off counted as up until three probes had failed, and its models were offered meanwhile.
  it('of what is only said to be there is unknown until it shows, from the first moment', async () => {
    const closed = await FakeEngine.listen();
    const { url } = closed;
    await closed.close();
    harness = await RouterHarness.start({
      engines: 3,
      endpoints: [{ models: ['m1'] }, { models: ['m2'], url }, { models: ['m3'] }],
      probes: 30,
      prepare: (engines) => {
        engines[2]?.onRequest((_request, wire) => wire.until(() => awake).then(() => wire.respond(200, OK)));
      },
    });
    let awake = false;
    const get = async (path: string) => {
      const client = await harness.connect();
      await client.get(path);
      const response = await client.response();
      return { status: response.status, text: response.body.toString() };
    };
    expect([state(0)?.state, state(1)?.state, state(2)?.state]).toEqual(['up', 'down', 'unknown']);
    const ups = await Promise.all(
      [1, 2, 3].map((n) => harness.metric(`llmgw_endpoint_up{endpoint="e${n}"}`)),
    );
    expect(ups).toEqual([1, 0, 0]);
    const { text } = await get('/v1/models');
    expect([...text.matchAll(/"id":"(\w+)"/g)].map((match) => match[1])).toEqual(['m1']);
    expect((await get('/v1/models/m3')).status).toBe(503);
    // It may still be asked: nobody knows that it is not there.
    const client = await harness.post('/v1/embeddings', { model: 'm3' });
    await harness.engine(2).waitFor((engine) => engine.requests.some(({ method }) => method === 'POST'));
    awake = true;
    expect((await client.response()).status).toBe(200);
    expect(state(2)?.state).toBe('up');
    expect((await get('/v1/models/m3')).status).toBe(200);
  });

  it('that nobody has makes the whole unavailable, and the control plane’s word is proof', async () => {
    const closed = await FakeEngine.listen();
    const { url } = closed;
    await closed.close();
    harness = await RouterHarness.start({ endpoints: [{ url }], probes: 60_000 });
    const health = async () => {
      const client = await harness.connect();
      await client.get('/health');
      return (await client.response()).status;
    };
    expect(await health()).toBe(503);
    const m2: RouteModel = {
      ...{ name: 'm2', aliases: [], routingProfile: 'interactive', fallback: [], desired: 1 },
      outlook: 'ready',
    };
    const replica: RouteEndpoint = {
      ...{ id: 'r1', generation: 1, host: '127.0.0.1', port: harness.engine().port, basePath: '' },
      ...{ models: ['m2'], pool: 'p', weight: 1, protocol: 'http', engine: 'vllm' },
    };
    harness.router.applyTable({ version: 1, models: [m2], endpoints: [replica] });
    expect(await health()).toBe(200);
  });

  it('takes the load from the engine’s own metrics', async () => {
    harness = await RouterHarness.start({
      engines: 1,
      endpoints: [{ engine: 'vllm' }],
      probes: 5_000,
      clock: fastClock(20),
    });
    harness
      .engine()
      .onRequest((_request, wire) =>
        wire.respond(
          200,
          'vllm:num_requests_running{engine="0"} 3.0\nvllm:num_requests_running{engine="1"} 4\n',
        ),
      );
    await waitFor(() => state(0)?.engineRunning === 7);
    expect(state(0)?.engineWaiting).toBeUndefined();
  });
});

describe('load metrics', () => {
  it('are found under each engine’s names, ranks added up', () => {
    const page = [
      '# HELP vllm:num_requests_running x',
      'vllm:num_requests_running_total 99',
      'sglang:num_running_reqs{a="b} 7"} 2 1700000000000',
      'sglang:num_queue_reqs{rank="0"} 1e1',
      'sglang:num_queue_reqs{rank="1"} 5',
      'x_vllm:num_requests_waiting 50',
    ].join('\n');
    expect(loadOf(page)).toEqual({ runningRequests: 2, waitingRequests: 15 });
    expect(loadOf('llamacpp:requests_processing 1\nllamacpp:requests_deferred NaN')).toEqual({
      runningRequests: 1,
      waitingRequests: undefined,
    });
    expect(loadOf('')).toEqual({ runningRequests: undefined, waitingRequests: undefined });
  });
});
