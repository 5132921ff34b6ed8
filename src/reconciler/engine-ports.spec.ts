/** Ports of engines: given by the control plane, taken by strangers now and then, and never an engine's only name. */
import { createServer, type AddressInfo } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { ControlServer, simModel } from '../../test/support/control-server.js';
import type { FakeAgent } from '../../test/support/fake-agent.js';
import { FakeEngine } from '../../test/support/fake-engine/fake-engine.js';
import { waitFor } from '../../test/support/wait-for.js';
import type { StartOrder } from '../agent-protocol/messages.js';
import type { ShardReport } from '../domain/cluster.js';

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).toReversed()) await cleanup();
});

async function start(...given: Parameters<typeof ControlServer.start>): Promise<ControlServer> {
  const server = await ControlServer.start(...given);
  cleanups.push(() => server.dispose());
  return server;
}

const startsOf = (agent: FakeAgent): readonly StartOrder[] =>
  agent.received.flatMap((message) => (message.kind === 'start' ? [message.order] : []));

function say(
  agent: FakeAgent,
  order: StartOrder,
  change: Partial<ShardReport>,
  portsTaken: readonly number[] = [],
): void {
  agent.shows(order.command, change);
  agent.report({ portsTaken });
}

// oxlint-disable-next-line typescript/no-explicit-any -- tests read what they know is there
const replicasOf = async (server: ControlServer): Promise<any[]> =>
  (await server.admin('replicas')).json.items;

describe('ports of engines', () => {
  it('are given once each, past one that a stranger has; whoever finds none waits and says so', async () => {
    const portRange: [number, number] = [25_000, 25_003];
    const server = await start({ models: [simModel('m1', { replicas: 4 })] }, { portRange });
    const agent = await server.join('n1', { onStart: 'manual' });
    agent.report({ portsTaken: [25_001] });
    // The first starts may have been decided before the second report; what counts is what stands in the end.
    await waitFor(async () => {
      for (const order of startsOf(agent)) {
        const taken = order.command.ports.http === 25_001;
        if (agent.shards.get(order.command.shardId)?.generation === order.command.generation) continue;
        agent.answer({ commandId: order.commandId, outcome: 'accepted' });
        say(agent, order, taken ? { phase: 'exited', verdict: 'portTaken' } : {});
        agent.report({ portsTaken: [25_001] });
      }
      return (await server.admin('models/m1')).json.ready === 3;
    });
    const ports = [...agent.shards.values()].flatMap(({ phase, ports: { http } }) =>
      phase === 'ready' ? [http] : [],
    );
    expect(ports.toSorted((a, b) => a - b)).toEqual([25_000, 25_002, 25_003]);
    await waitFor(async () =>
      JSON.stringify((await server.admin('placements/m1/explain')).json).includes('no_free_port'),
    );
    const waiting = (await replicasOf(server)).filter(({ state }) => state !== 'ready');
    expect(waiting).toHaveLength(1);
    expect(waiting[0].nodes).toEqual([]);
  });

  it('found taken at the start are another port at once, and no failure of the model', async () => {
    const server = await start({ models: [simModel('m1')] }, { baseBackoff: 120_000, maxBackoff: 300_000 });
    const agent = await server.join('n1', { onStart: 'manual' });
    const first = await waitFor(() => startsOf(agent)[0]);
    agent.answer({ commandId: first.commandId, outcome: 'accepted' });
    say(agent, first, { phase: 'exited', verdict: 'portTaken', message: 'port is taken by pid 7' });
    const second = await waitFor(() => startsOf(agent)[1]);
    expect(second.command.ports.http).not.toBe(first.command.ports.http);
    expect(second.command.generation).toBe(first.command.generation + 1);
    agent.answer({ commandId: second.commandId, outcome: 'accepted' });
    say(agent, second, {});
    await waitFor(async () => (await server.admin('models/m1')).json.ready === 1);
  });
});

describe('an engine that comes back on another port', () => {
  /** Two ports side by side that are free now. */
  async function twoFree(): Promise<[number, number]> {
    for (let base = 26_000; base < 27_000; base += 2) {
      const free = await Promise.all([base, base + 1].map(isFree));
      if (free.every(Boolean)) return [base, base + 1];
    }
    throw new Error('no two ports are free');
  }

  const isFree = (port: number): Promise<boolean> =>
    new Promise((resolve) => {
      const probe = createServer();
      probe.once('error', () => resolve(false));
      probe.listen(port, '127.0.0.1', () => {
        expect((probe.address() as AddressInfo).port).toBe(port);
        probe.close(() => resolve(true));
      });
    });

  it('is never looked for on its old one, where another model answers now', async () => {
    const portRange = await twoFree();
    const control = { portRange, baseBackoff: 3_000, maxBackoff: 3_000 };
    const server = await start({ models: [simModel('m1')] }, control);
    const agent = await server.join('n1', { onStart: 'manual' });
    const engines: { readonly model: string; readonly port: number; readonly engine: FakeEngine }[] = [];

    /** Carries a start out: an engine on the very port. */
    async function obey(order: StartOrder): Promise<void> {
      const { model, ports } = order.command;
      const engine = await FakeEngine.listen(ports.http);
      cleanups.push(() => engine.close());
      engine.onRequest((_request, wire) => wire.respond(200, JSON.stringify({ from: model })));
      engines.push({ model, port: ports.http, engine });
      agent.answer({ commandId: order.commandId, outcome: 'accepted' });
      say(agent, order, {});
    }
    const next = (from: number): Promise<StartOrder> =>
      waitFor(() => startsOf(agent)[from]) as Promise<StartOrder>;

    const url = `http://${server.server.addresses.client}/v1/chat/completions`;
    const answers: string[] = [];
    let asking = true;
    const asked = (async () => {
      while (asking) {
        const body = JSON.stringify({ model: 'm1', messages: [{ role: 'user', content: 'hi' }] });
        const response = await fetch(url, {
          method: 'POST',
          body,
          headers: { 'content-type': 'application/json' },
        });
        answers.push(
          response.ok ? ((await response.json()) as { from: string }).from : String(response.status),
        );
      }
    })();
    cleanups.push(() => (asking = false));

    const first = await next(0);
    await obey(first);
    await waitFor(() => answers.filter((from) => from === 'm1').length > 3);
    // It ends. Before its back-off is over another model is there, and no port is free but the one it had.
    const old = engines[0]!;
    const others = portRange.filter((port) => port !== old.port);
    await old.engine.close();
    say(agent, first, { phase: 'exited', exitCode: 1 }, others);
    await waitFor(async () => (await replicasOf(server))[0].state === 'backoff');
    server.edited = { models: [simModel('m1'), simModel('m2')] };
    server.server.reload('test');
    await obey(await next(1));
    await obey(await next(2));
    await waitFor(async () => (await server.admin('models/m1')).json.ready === 1);
    const before = answers.length;
    await waitFor(() => answers.length > before + 5);
    asking = false;
    await asked;

    expect(engines.map(({ model }) => model).toSorted()).toEqual(['m1', 'm1', 'm2']);
    const other = engines.find(({ model }) => model === 'm2')!;
    // Otherwise nothing was at stake.
    expect(other.port).toBe(old.port);
    const posts = other.engine.requests.filter(({ method }) => method === 'POST');
    expect(posts).toEqual([]);
    expect(answers).not.toContain('m2');
  });
});
