import { afterEach, describe, expect, it } from 'vitest';
import { ControlServer, simModel } from '../../test/support/control-server.js';
import { testGpu, type FakeAgent } from '../../test/support/fake-agent.js';
import { waitFor } from '../../test/support/wait-for.js';
import { ControlConfig, type ServerConfig } from '../config/server-config.js';
import { RouterService } from '../router/router.service.js';
import { STATE_STORE, StoreError, type StateStore } from '../store/ports.js';
import { RECONCILER_SETTINGS, type ReconcilerSettings } from './reconciler-settings.js';
import { ReconcilerService } from './reconciler.service.js';

const servers: ControlServer[] = [];
afterEach(async () => {
  for (const server of servers.splice(0)) await server.dispose();
});

async function start(
  change: Partial<ServerConfig> = {},
  control: Partial<ControlConfig> = {},
): Promise<ControlServer> {
  const server = await ControlServer.start({ models: [simModel('m1')], ...change }, control);
  servers.push(server);
  return server;
}

const reconcilerOf = (server: ControlServer) => server.server.app.get(ReconcilerService, { strict: false });
const storeOf = (server: ControlServer) => server.server.app.get<StateStore>(STATE_STORE, { strict: false });
const endpointIds = (server: ControlServer) =>
  server.server.app
    .get(RouterService, { strict: false })
    .endpoints()
    .map((one) => one.endpoint.id);
const replicasOf = async (server: ControlServer) => (await server.admin('replicas')).json.items;
const readyCount = async (server: ControlServer, model = 'm1'): Promise<number> =>
  (await server.admin(`models/${model}`)).json.ready;
const commandsOf = (agent: FakeAgent) =>
  agent.received.filter((message) => message.kind === 'start' || message.kind === 'stop');

interface Told {
  readonly type: string;
  readonly reason: { readonly message: string };
}
const eventsOf = async (server: ControlServer): Promise<readonly Told[]> =>
  (await server.admin('events')).json.items;

/** Lets the loop run its passes; what should not happen had every chance to. */
async function passes(server: ControlServer, count: number): Promise<void> {
  const reconciler = reconcilerOf(server);
  let seen = 0;
  let last = reconciler.lastPass();
  await waitFor(() => {
    if (reconciler.lastPass() !== last) [seen, last] = [seen + 1, reconciler.lastPass()];
    return seen >= count;
  });
}

describe('the order of things', () => {
  it('a replica is out of the router before its stop is sent', async () => {
    const server = await start();
    const agent = await server.join('n1', { onStart: ['ready'] });
    await waitFor(async () => (await readyCount(server)) === 1);
    const published: string[][] = [];
    const dispatcher = (
      reconcilerOf(server) as unknown as { dispatcher: { stopShard: (...a: never[]) => unknown } }
    ).dispatcher;
    const stopShard = dispatcher.stopShard.bind(dispatcher);
    dispatcher.stopShard = (...args) => {
      published.push(endpointIds(server));
      return stopShard(...args);
    };
    await server.admin('models/m1/scale', { method: 'PUT', body: { replicas: 0 } });
    await agent.next('stop');
    expect(published[0]).toEqual([]);
  });

  it('every GPU is given once although the agent says nothing for several passes', async () => {
    const profile = { gpus: 1, gpuMemory: 10 * 1024 ** 3 };
    const server = await start({ models: [simModel('m1', { replicas: 4 }, profile)] });
    const gpus = ['a', 'b', 'c', 'd'].map((name) =>
      testGpu(`GPU-${name}`, { memoryTotalBytes: 16 * 1024 ** 3 }),
    );
    const agent = await server.join('n1', { gpus, onStart: 'manual' });
    await waitFor(() => agent.received.filter((message) => message.kind === 'start').length >= 4);
    await passes(server, 5);
    const orders = agent.received
      .filter((message) => message.kind === 'start')
      .map((message) => message.order.command);
    expect(new Set(orders.map((order) => order.shardId)).size).toBe(4);
    expect(new Set(orders.flatMap((order) => order.gpuUuids)).size).toBe(4);
    expect(new Set(orders.map((order) => order.ports.http)).size).toBe(4);
    expect(orders.every((order) => order.gpuUuids.length === 1)).toBe(true);
  });

  it('an agent that refuses a start is not asked again; another node is', async () => {
    // However long failed starts wait: this one did not fail, it was never made.
    const server = await start({}, { baseBackoff: 3_600_000, maxBackoff: 3_600_000 });
    const first = await server.join('n1', { onStart: 'manual' });
    const { order } = await first.next('start');
    const second = await server.join('n2');
    first.answer({
      commandId: order.commandId,
      outcome: 'refused',
      verdict: 'notAllowed',
      message: 'not in my file',
    });
    first.report();
    await second.next('start');
    await waitFor(async () => (await readyCount(server)) === 1);
    expect(first.received.filter((message) => message.kind === 'start')).toHaveLength(1);
    expect((await server.admin('models/m1')).json.backoffs[0]).toMatchObject({
      nodeId: 'n1',
      cause: 'notAllowed',
      permanent: true,
      lastMessage: 'not in my file',
    });
  });

  it('a refusal of our term is no failure of the start', async () => {
    const server = await start();
    const agent = await server.join('n1', { onStart: 'manual' });
    const { order } = await agent.next('start');
    agent.answer({
      commandId: order.commandId,
      outcome: 'refused',
      cause: 'staleTerm',
      message: 'term 1 is over, this agent obeys 9',
    });
    agent.report();
    await waitFor(async () => (await eventsOf(server)).some(({ type }) => type === 'TermRefused'));
    await passes(server, 3);
    expect((await server.admin('models/m1')).json.backoffs).toEqual([]);
    expect((await replicasOf(server))[0]).toMatchObject({ generation: 1, state: 'starting', restarts: 0 });
  });

  it('a phase only a newer agent knows neither stops nor publishes anything', async () => {
    const server = await start();
    const agent = await server.join('n1');
    await waitFor(async () => (await readyCount(server)) === 1);
    const [shardId = ''] = agent.shards.keys();
    agent.setShard(shardId, { phase: 'unknown' });
    await waitFor(async () => (await readyCount(server)) === 0);
    await passes(server, 3);
    expect(commandsOf(agent)).toHaveLength(1);
    agent.setShard(shardId, { phase: 'ready' });
    await waitFor(async () => (await readyCount(server)) === 1);
  });
});

describe('a crash', () => {
  it('takes the replica out of the router, waits its back-off, and starts the next generation', async () => {
    const server = await start({}, { baseBackoff: 50 });
    const agent = await server.join('n1');
    await waitFor(async () => (await readyCount(server)) === 1);
    const [shardId = ''] = agent.shards.keys();
    agent.setShard(shardId, {
      phase: 'exited',
      exitCode: 1,
      verdict: 'crashed',
      message: 'segfault',
      logTail: 'boom',
    });
    await waitFor(() => agent.received.filter((message) => message.kind === 'start').length === 2);
    await waitFor(async () => (await readyCount(server)) === 1);
    const [replica] = await replicasOf(server);
    expect(replica).toMatchObject({ generation: 2, restarts: 1 });
    const types = (await server.admin('events')).json.items.map((event: { type: string }) => event.type);
    expect(types).toContain('ReplicaBackingOff');
    const metrics = (await server.admin('/metrics')).text;
    expect(metrics).toMatch(/llmgw_shard_restarts_total\{model="m1",cause="crashed"\} 1/);
  });
});

describe('a store that takes no writes', () => {
  it('stops decisions and changes, leaves routing alone, and all goes on when it recovers', async () => {
    const server = await start();
    const agent = await server.join('n1');
    await waitFor(async () => (await readyCount(server)) === 1);
    const store = storeOf(server);
    const before = commandsOf(agent).length;
    const txn = store.txn.bind(store);
    const health = store.health.bind(store);
    store.txn = () => {
      throw new StoreError('disk_full', 'no space is left');
    };
    store.health = () => ({ ok: false, reason: 'no space is left' });
    const refused = await server.admin('models/m1/scale', { method: 'PUT', body: { replicas: 3 } });
    expect(refused.status).toBe(503);
    expect(refused.json.error).toMatchObject({
      code: 'store_unavailable',
      hint: /routing goes on/ as unknown,
    });
    expect((await server.admin('models/m1')).json.desired).toBe(1);

    const [shardId = ''] = agent.shards.keys();
    agent.setShard(shardId, { phase: 'exited', exitCode: 1, verdict: 'crashed' });
    await waitFor(() => reconcilerOf(server).lastPass()?.notStored !== undefined);
    await passes(server, 3);
    expect(commandsOf(agent)).toHaveLength(before);
    expect(endpointIds(server)).toHaveLength(1);
    expect((await server.admin('/readyz?verbose')).text).toContain('[-] store: no space is left');
    expect((await server.admin('status')).json.warnings[0].code).toBe('store_unavailable');
    // Of what was not done nothing is told.
    const types = (await server.admin('events')).json.items.map((event: { type: string }) => event.type);
    expect(types).not.toContain('ReplicaBackingOff');
    expect(server.log.filter((line) => line.includes('decisions cannot be stored'))).toHaveLength(1);

    store.txn = txn;
    store.health = health;
    await waitFor(() => endpointIds(server).length === 0 || commandsOf(agent).length > before);
    expect((await server.admin('models/m1/scale', { method: 'PUT', body: { replicas: 3 } })).status).toBe(
      200,
    );
  });
});

describe('a fault in the decisions themselves', () => {
  type Decide = ReconcilerSettings['decide'];

  /** A server whose decisions go wrong from now on. */
  async function broken(faulty: (sound: Decide) => Decide) {
    const server = await start();
    const agent = await server.join('n1');
    await waitFor(async () => (await readyCount(server)) === 1);
    const settings = server.server.app.get<{ decide: Decide }>(RECONCILER_SETTINGS, { strict: false });
    settings.decide = faulty(settings.decide);
    const before = commandsOf(agent).length;
    await waitFor(async () => (await server.admin('status')).json.plan.refused !== undefined);
    // Something to do, which must now not be done.
    await server.admin('models/m1/scale', { method: 'PUT', body: { replicas: 0 } });
    await passes(server, 3);
    expect(commandsOf(agent)).toHaveLength(before);
    expect(endpointIds(server)).toHaveLength(1);
    expect((await server.admin('status')).json.warnings[0].code).toBe('plan_refused');
    return server;
  }

  it('a plan that breaks an invariant is not carried out, and alarmed once', async () => {
    const server = await broken((sound) => (...args) => ({ ...sound(...args), term: 99 }));
    expect((await server.admin('/metrics')).text).toMatch(
      /llmgw_plans_refused_total\{violation="wrong_term"\} \d/,
    );
    expect(server.log.filter((line) => line.includes('a plan breaks an invariant'))).toHaveLength(1);
    const types = (await server.admin('events')).json.items.map((event: { type: string }) => event.type);
    expect(types.filter((type: string) => type === 'PlanRefused')).toHaveLength(1);
  });

  it('an exception costs the pass, not the process', async () => {
    const server = await broken(() => () => {
      throw new Error('planted');
    });
    expect((await server.admin('status')).json.plan.refused).toMatchObject({
      code: 'pass_failed',
      message: 'planted',
    });
    expect((await fetch(`http://${server.server.addresses.client}/health`)).status).toBe(200);
  });
});

describe('a restart of the server', () => {
  it('starts and stops nothing while agents come back one by one, and adopts all they run', async () => {
    const server = await start({ models: [simModel('m1', { replicas: 3, placement: spread() })] });
    const agents = [];
    for (const id of ['n1', 'n2', 'n3']) agents.push(await server.join(id));
    await waitFor(async () => (await readyCount(server)) === 3);
    const ids = (await replicasOf(server)).map((one: { id: string }) => one.id);
    await server.stop();
    server.config.control.settleAfterStart = 60_000;
    await server.start();
    expect(await readyCount(server)).toBe(3);
    // Nothing was heard yet: that is no bad news, and says so.
    expect((await server.admin('status')).json.warnings).toEqual([]);
    expect(await replicasOf(server)).toMatchObject(
      Array.from({ length: 3 }, () => ({ state: 'unknown', reason: { code: 'awaits_agent' } })),
    );
    expect((await server.admin('nodes/n2')).json.stateReason).toMatch(
      /^waiting for the agent's first report to this server, last seen \d+ s ago$/,
    );
    const back: FakeAgent[] = [];
    for (const former of agents) {
      await passes(server, 2);
      const agent = await server.join(former.hello.nodeId);
      for (const [id, shard] of former.shards) agent.shards.set(id, shard);
      agent.report();
      back.push(agent);
    }
    await passes(server, 3);
    expect((await replicasOf(server)).map((one: { id: string }) => one.id)).toEqual(ids);
    expect(await readyCount(server)).toBe(3);
    expect(back.flatMap(commandsOf)).toEqual([]);
    expect((await back[0]?.next('welcome'))?.welcome.term).toBe(2);
    await waitFor(
      async () => (await eventsOf(server)).filter(({ type }) => type === 'ReplicaAdopted').length === 3,
    );
  });

  it('tells who came back and with what', async () => {
    const server = await start();
    const agent = await server.join('n1');
    await waitFor(async () => (await readyCount(server)) === 1);
    agent.leave();
    await waitFor(async () => (await eventsOf(server)).some(({ type }) => type === 'AgentDisconnected'));
    const again = await server.join('n1', { hello: { bootId: 'boot-n1' } });
    for (const [id, shard] of agent.shards) again.shards.set(id, shard);
    again.report();
    await waitFor(async () => (await eventsOf(server)).some(({ type }) => type === 'AgentReconnected'));
    const told = (await eventsOf(server)).find(({ type }) => type === 'AgentReconnected');
    expect(told?.reason.message).toContain('a new agent process');
  });

  it('on an older state takes what runs over instead of starting it again', async () => {
    const server = await start();
    const agent = await server.join('n1', { hello: { highestTerm: 40 } });
    await waitFor(async () => (await readyCount(server)) === 1);
    await server.stop();
    // As after a restore of a backup from before the replica existed.
    const empty = await start({}, { settleAfterStart: 500 });
    const back = await empty.join('n1', { hello: { highestTerm: 41 } });
    for (const [id, shard] of agent.shards) back.shards.set(id, shard);
    back.report();
    await waitFor(async () => (await readyCount(empty)) === 1);
    await passes(empty, 8);
    expect(commandsOf(back)).toEqual([]);
    expect((await empty.admin('status')).json.term).toBe(42);
  });

  it('without its state waits for other agents although the first runs nothing, also after another restart, until told not to', async () => {
    const server = await start({}, { settleAfterStart: 3_600_000 });
    const first = await server.join('n2', { hello: { highestTerm: 41 } });
    await waitFor(async () => (await eventsOf(server)).some(({ type }) => type === 'StateLost'));
    await passes(server, 4);
    await server.stop();
    await server.start();
    // By now the agent has obeyed nobody but this server.
    const back = await server.join('n2', { hello: { highestTerm: 42 } });
    await waitFor(async () => (await server.admin('nodes/n2')).json.state === 'connected');
    await passes(server, 4);
    expect([first, back].flatMap(commandsOf)).toEqual([]);
    expect((await server.admin('models/m1')).json.reason.message).toContain('control.settleAfterStart');
    server.edited = { control: Object.assign(new ControlConfig(), { interval: 100, settleAfterStart: 0 }) };
    expect((await server.admin('config/reload', { method: 'POST', body: {} })).status).toBe(200);
    await waitFor(async () => (await readyCount(server)) === 1);
  });
});

describe('a machine whose agent comes back under another node id', () => {
  const machine = { machineId: 'm-7', bootId: 'b-7' };

  it('keeps its engines: records follow what the new node proves to run, and nothing is started twice', async () => {
    const profile = { gpus: 1 };
    const server = await start(
      { models: [simModel('m1', {}, profile)] },
      { unreachableAfter: 500, lostAfter: 1_500 },
    );
    const gpus = [testGpu('GPU-a')];
    const before = await server.join('n1', { gpus, hello: machine });
    await waitFor(async () => (await readyCount(server)) === 1);
    const [replica] = await replicasOf(server);
    before.leave();
    const after = await server.join('n1b', { gpus, hello: machine });
    for (const [id, shard] of before.shards) after.shards.set(id, shard);
    after.report();
    await waitFor(async () => (await replicasOf(server))[0].nodes.join() === 'n1b');
    await waitFor(async () => {
      after.report();
      return (await server.admin('nodes/n1')).json.state === 'lost';
    });
    expect(await replicasOf(server)).toMatchObject([{ id: replica.id, generation: 1, state: 'ready' }]);
    expect(commandsOf(after)).toEqual([]);
  });

  it('another agent on the same machine that runs nothing of it takes nothing over', async () => {
    const server = await start({}, { unreachableAfter: 60_000 });
    const first = await server.join('n1', { hello: machine });
    await waitFor(async () => (await readyCount(server)) === 1);
    first.leave();
    await server.join('n2', { hello: machine });
    await passes(server, 4);
    expect((await replicasOf(server))[0].nodes).toEqual(['n1']);
  });
});

function spread() {
  return { strategy: 'spread' as const, nodeSelector: {}, antiAffinity: true, mayYield: false };
}
