import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { delta, RouterHarness } from '../../test/support/router-harness.js';
import type { RawClient } from '../../test/support/raw-client.js';
import { waitFor } from '../../test/support/wait-for.js';
import { ENGINE_ROUTES, type EngineRoute } from './routes.js';

/** How a client goes: a reset, an ordinary close of both directions, or only of its own. */
const WAYS = ['rst', 'destroy', 'halfClose'] as const;

const HALF_JSON = '{"object":"x",';
const BOUNDARY = 'b0undary';

interface Phase {
  readonly name: string;
  readonly streams?: boolean;
  /** Requests that reach an engine; the rest of the body is never sent in the first phase. */
  readonly reachesEngine: boolean;
  readonly prepare: (harness: RouterHarness) => Promise<void> | void;
  /** Waits until the request stands where the phase says. */
  readonly arrive: (harness: RouterHarness, client: RawClient) => Promise<unknown>;
}

function silent(harness: RouterHarness): void {
  harness.engine().onRequest((_request, wire) => wire.waitClosed().then(() => undefined));
}
const atEngine = (harness: RouterHarness) =>
  harness.engine().waitFor((engine) => engine.requests.length === 1);
const inFlight = (harness: RouterHarness) => waitFor(() => harness.router.endpoints()[0]?.inflight === 1);

const PHASES: readonly Phase[] = [
  {
    name: 'in its body',
    reachesEngine: false,
    prepare: silent,
    arrive: (harness) => waitFor(() => harness.router.exchanges.size === 1),
  },
  {
    name: 'before the head of the answer',
    reachesEngine: true,
    prepare: silent,
    arrive: atEngine,
  },
  {
    name: 'before the first event',
    streams: true,
    reachesEngine: true,
    prepare: (harness) => {
      harness.engine().onRequest(async (_request, wire) => {
        await wire.startStream();
        await wire.chunk(': not yet\n\n');
        await wire.waitClosed();
      });
    },
    arrive: async (harness) => {
      await atEngine(harness);
      await inFlight(harness);
    },
  },
  {
    name: 'in a stream',
    streams: true,
    reachesEngine: true,
    prepare: (harness) => {
      harness.engine().onRequest(async (_request, wire) => {
        await wire.startStream();
        while (!wire.peerGone) {
          await wire.chunk(delta('x'));
          await harness.passed(2);
        }
      });
    },
    arrive: (_harness, client) => client.waitForText('"x"'),
  },
  {
    name: 'in a whole answer',
    reachesEngine: true,
    prepare: (harness) => {
      harness.engine().onRequest(async (_request, wire) => {
        await wire.write(
          'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100000\r\n\r\n' + HALF_JSON,
        );
        await wire.waitClosed();
      });
    },
    arrive: (_harness, client) => client.waitForText(HALF_JSON),
  },
];

function bodyOf(route: EngineRoute, stream: boolean): { readonly type: string; readonly text: string } {
  if (route.body !== 'multipart') {
    const text = JSON.stringify({ model: 'm1', stream, messages: [], prompt: 'x', input: 'x' });
    return { type: 'application/json', text };
  }
  const part = (name: string, value: string) =>
    `--${BOUNDARY}\r\ncontent-disposition: form-data; name="${name}"\r\n\r\n${value}\r\n`;
  const text = `${part('file', 'sound')}${part('model', 'm1')}${part('stream', String(stream))}--${BOUNDARY}--\r\n`;
  return { type: `multipart/form-data; boundary=${BOUNDARY}`, text };
}

async function send(client: RawClient, route: EngineRoute, phase: Phase): Promise<void> {
  const { type, text } = bodyOf(route, phase.streams === true);
  const head =
    `POST ${route.path} HTTP/1.1\r\nhost: x\r\ncontent-type: ${type}\r\n` +
    `content-length: ${text.length}\r\n\r\n`;
  await client.send(head + (phase.name === 'in its body' ? text.slice(0, 20) : text));
}

// A client that left kept its engine busy. Often one route had the abort wired and the next one had not, or a stream
// and no whole answer, or a reset and no ordinary close: so each with each.
describe.each(PHASES.map((phase) => [phase.name, phase] as const))(
  'a client that leaves %s',
  (_name, phase) => {
    let harness: RouterHarness;
    beforeAll(async () => void (harness = await RouterHarness.start()));
    afterAll(() => harness.stop());

    const routes = ENGINE_ROUTES.filter((route) => phase.streams !== true || route.generates);
    it.each(routes.flatMap((route) => WAYS.map((way) => [route.path, way, route] as const)))(
      '%s (%s)',
      async (_path, way, route) => {
        const engine = harness.engine();
        engine.requests.length = 0;
        harness.logLines.length = 0;
        await phase.prepare(harness);
        const client = await harness.connect();
        await send(client, route, phase);
        await phase.arrive(harness, client);
        client[way]();
        await engine.waitIdle();
        await harness.settle();
        expect(engine.requests).toHaveLength(phase.reachesEngine ? 1 : 0);
        const [record, ...others] = harness.accessLog();
        expect(others).toEqual([]);
        expect(record).toMatchObject({ status: 499, outcome: 'client_closed', route: route.label });
        expect(harness.router.endpoints()[0]).toMatchObject({ state: 'up', failuresTotal: 0, inflight: 0 });
      },
    );
  },
);

describe('a client that leaves before anything was sent to an engine', () => {
  const GENERATING = ENGINE_ROUTES.filter((route) => route.generates);

  it.each(GENERATING.flatMap((route) => WAYS.map((way) => [route.path, way, route] as const)))(
    'from the queue: %s (%s)',
    async (_path, way, route) => {
      const harness = await RouterHarness.start({ endpoints: [{ maxConcurrency: 1 }] });
      silent(harness);
      const running = await harness.chat();
      await atEngine(harness);
      const client = await harness.connect();
      await send(client, route, PHASES[1] as Phase);
      const depth = () => harness.metric('llmgw_queue_depth{model="m1"}');
      await waitFor(async () => (await depth()) === 1);
      client[way]();
      await waitFor(async () => (await depth()) === 0);
      running.rst();
      await harness.engine().waitIdle();
      expect(harness.engine().requests).toHaveLength(1);
      await harness.stop();
      expect(harness.accessLog().map(({ outcome }) => outcome)).toEqual(['client_closed', 'client_closed']);
    },
  );

  it.each(WAYS)('while the connection is being made (%s)', async (way) => {
    // A TLS handshake that never ends stands for a connect that hangs.
    const harness = await RouterHarness.start({
      configure: (config) => {
        for (const endpoint of config.endpoints) endpoint.url = endpoint.url.replace('http:', 'https:');
      },
    });
    harness.engine().onConnection(() => true);
    const client = await harness.chat();
    await harness.engine().waitFor((engine) => engine.openSockets === 1);
    client[way]();
    await harness.engine().waitIdle();
    expect(harness.router.endpoints()[0]).toMatchObject({ failuresTotal: 0 });
    await harness.stop();
    expect(harness.accessLog()).toMatchObject([{ status: 499, outcome: 'client_closed' }]);
  });
});
