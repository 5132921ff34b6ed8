/**
 * What agents must not be able to do to a server and to each other, over real streams: say too much, say it twice, say it under
 * another's name, come in all at once.
 */
import { status as GrpcStatus } from '@grpc/grpc-js';
import { afterEach, describe, expect, it } from 'vitest';
import { ControlServer, simModel } from '../../test/support/control-server.js';
import { FakeAgent, testGpu, type FakeAgentOptions } from '../../test/support/fake-agent.js';
import { waitFor } from '../../test/support/wait-for.js';
import type { Hello } from '../agent-protocol/messages.js';
import { probeToWire, reportToWire } from '../agent-protocol/to-wire.js';
import type { ShardReport } from '../domain/cluster.js';
import { ReconcilerService } from './reconciler.service.js';

const servers: ControlServer[] = [];
const strays: FakeAgent[] = [];
afterEach(async () => {
  for (const stray of strays.splice(0)) stray.leave();
  for (const server of servers.splice(0)) await server.dispose();
});

async function start(replicas = 1): Promise<ControlServer> {
  const server = await ControlServer.start({ models: [simModel('m1', { replicas })] });
  servers.push(server);
  return server;
}

function dial(server: ControlServer, nodeId: string, options: Partial<FakeAgentOptions> = {}): FakeAgent {
  const agent = FakeAgent.dial({ port: server.agentPort, nodeId, ...options });
  strays.push(agent);
  return agent;
}

const reconcilerOf = (server: ControlServer) => server.server.app.get(ReconcilerService, { strict: false });
const nodeOf = (server: ControlServer, id: string) =>
  reconcilerOf(server)
    .snapshot()
    .nodes.find((node) => node.id === id);
const ready = async (server: ControlServer, count = 1): Promise<unknown> =>
  waitFor(async () => (await server.admin('models/m1')).json.ready === count);
const acked = (agent: FakeAgent, sequence: number): Promise<unknown> =>
  waitFor(() => agent.received.some((one) => one.kind === 'ack' && one.sequence === sequence));

function aShardReport(shardId: string, change: Partial<ShardReport> = {}): ShardReport {
  const replicaId = shardId.replace(/\.\d+$/, '');
  return {
    ...{ shardId, replicaId, model: 'm1', profile: 'p', generation: 1, rank: 0, phase: 'ready' },
    ...{ gpuUuids: [], ports: { http: 25_000 }, specDigest: 'd' },
    ...change,
  };
}

describe('a message that is too large', () => {
  it('costs its own stream, with the reason; others live, and the same agent is taken again at once', async () => {
    const server = await start();
    const bystander = await server.join('n2');
    const agent = await server.join('n1');
    agent.send({ log: { requestId: 'x', data: Buffer.alloc(6 * 1024 * 1024), end: true, error: '' } });
    expect((await agent.ended()).code).toBe(GrpcStatus.RESOURCE_EXHAUSTED);
    const again = await server.join('n1');
    await acked(again, again.report());
    await acked(bystander, bystander.report());
    expect(bystander.status).toBeUndefined();
  });
});

describe('a report', () => {
  it('older than the last, or the last once more, changes nothing', async () => {
    const server = await start();
    const agent = await server.join('n1', { gpus: [testGpu('g1')] });
    await acked(agent, agent.report({ sequence: 7, portsTaken: [21_000] }));
    for (const sequence of [7, 6, 0]) await acked(agent, agent.report({ sequence, portsTaken: [22_000] }));
    expect(nodeOf(server, 'n1')?.portsTaken).toEqual([21_000]);
  });

  it('on a stream that was replaced is not heard', async () => {
    const server = await start();
    const old = await server.join('n1', { hello: { instanceId: 'one' } });
    const next = await server.join('n1', { hello: { instanceId: 'two' } });
    await acked(next, next.report());
    await old.ended();
    old.report({ sequence: 99, portsTaken: [22_000] });
    await acked(next, next.report());
    expect(nodeOf(server, 'n1')?.portsTaken).toEqual([]);
  });

  it.each<[string, readonly ShardReport[]]>([
    ['the same shard twice', [aShardReport('a-1.0'), aShardReport('a-1.0', { phase: 'exited' })]],
    ['more shards than any machine runs', Array.from({ length: 1_025 }, (_, i) => aShardReport(`a-${i}.0`))],
  ])('that names %s is left out whole, and what was known stands', async (_, shards) => {
    const server = await start();
    const agent = await server.join('n1');
    await ready(server);
    agent.report({ shards });
    await acked(agent, agent.report());
    expect(nodeOf(server, 'n1')?.shards).toHaveLength(1);
    await ready(server);
  });

  it('of a shard on a device its node does not have takes no device away from anybody', async () => {
    const server = await ControlServer.start({ models: [simModel('m1', { replicas: 1 }, { gpus: 1 })] });
    servers.push(server);
    const agent = await server.join('n1', { gpus: [testGpu('g1')] });
    agent.shards.set('x-1.0', aShardReport('x-1.0', { model: 'other', gpuUuids: ['g99'] }));
    agent.report();
    await ready(server);
    const placed = reconcilerOf(server)
      .snapshot()
      .replicas.find(({ model }) => model === 'm1');
    expect(placed?.shards[0]?.gpuUuids).toEqual(['g1']);
  });

  it('with fields and kinds of a later protocol is taken for what is known of it', async () => {
    const server = await start();
    const agent = await server.join('n1');
    const wire = reportToWire({
      ...{ sequence: 50, complete: true, gpus: [testGpu('g1')], shards: [], portsTaken: [] },
      ...{ engines: [{ kind: 'sim' }], weightsPresent: [], conditions: [], uptimeMs: 1 },
    });
    const report = { ...wire.report, engines: [{ kind: 'sim' }, { kind: 'quantum' }], mood: 'good' };
    agent.send({ report } as never);
    await acked(agent, 50);
    expect(nodeOf(server, 'n1')?.engines.map(({ kind }) => kind)).toEqual(['sim']);
  });

  it('whose inventory shrinks and grows leaves what is gone visible and takes what is new', async () => {
    const server = await start();
    const agent = await server.join('n1', { gpus: [testGpu('g1'), testGpu('g2')] });
    await acked(agent, agent.report());
    await acked(agent, agent.report({ gpus: [testGpu('g1'), testGpu('g3')] }));
    const states = nodeOf(server, 'n1')?.gpus.map(({ uuid, health }) => `${uuid} ${health.state}`);
    expect(states).toEqual(['g1 healthy', 'g3 healthy', 'g2 excluded']);
  });
});

describe('a hello', () => {
  it.each([
    ['slashes', 'a/b'],
    ['a way up', '../n1'],
    ['control characters', 'n1\u001b[2J'],
    ['ten thousand characters', 'n'.repeat(10_000)],
  ])('with %s in its node id is refused, and the id reaches neither log nor view', async (_, nodeId) => {
    const server = await start();
    const agent = dial(server, nodeId);
    agent.sayHello();
    expect((await agent.ended()).code).toBe(GrpcStatus.INVALID_ARGUMENT);
    expect((await server.admin('nodes')).json.items).toEqual([]);
    expect(server.log.join('\n')).not.toContain(nodeId);
  });

  it.each([
    ['without a protocol version', { protocolVersion: 0, minProtocolVersion: 0 }, /no protocol version.*1/],
    ['of protocol 99', { protocolVersion: 99, minProtocolVersion: 99 }, /99.*\b1\b|\b1\b.*99/],
  ])('%s is told both versions, and operators see who it was and how often', async (_, hello, both) => {
    const server = await start();
    const good = await server.join('n1');
    good.leave();
    await waitFor(() => nodeOf(server, 'n1')?.streamSinceMs === undefined);
    for (const nodeId of ['n1', 'n1', 'n9']) {
      const agent = dial(server, nodeId, { hello: { ...hello, build: '0.0.1' } });
      agent.sayHello();
      const { code, details } = await agent.ended();
      expect(code).toBe(GrpcStatus.FAILED_PRECONDITION);
      expect(details).toMatch(both);
    }
    const { json } = await server.admin('nodes/n1');
    expect(json.refused).toMatchObject([
      { from: '127.0.0.1', count: 2, reason: { code: 'incompatibleVersion' } },
    ]);
    const { warnings } = (await server.admin('status')).json;
    const refused = warnings.filter(({ code: kind }: { code: string }) => kind === 'agent_refused');
    expect(refused).toHaveLength(1);
    expect(refused[0].message).toMatch(/^an agent at 127\.0\.0\.1 that calls itself n9 was refused: /);
    const events = JSON.stringify((await server.admin('events')).json);
    expect(events).toContain('"id":"n9"');
  });

  it('said twice on one stream changes nothing, also under another name', async () => {
    const server = await start();
    const agent = await server.join('n1');
    agent.sayHello();
    agent.send({
      hello: { protocolVersion: 1, minProtocolVersion: 1, nodeId: 'n2', instanceId: 'x' },
    } as never);
    await acked(agent, agent.report());
    expect(
      reconcilerOf(server)
        .snapshot()
        .nodes.map(({ id }) => id),
    ).toEqual(['n1']);
  });

  it('of two agents that swapped their ids moves neither node while both live', async () => {
    const server = await start();
    const one = await server.join('n1');
    const two = await server.join('n2');
    const swapped = [
      dial(server, 'n1', { hello: { machineId: 'machine-n2', bootId: 'boot-n2' } }),
      dial(server, 'n2', { hello: { machineId: 'machine-n1', bootId: 'boot-n1' } }),
    ];
    for (const agent of swapped) agent.sayHello();
    for (const agent of swapped) expect((await agent.ended()).code).toBe(GrpcStatus.ALREADY_EXISTS);
    await acked(one, one.report());
    await acked(two, two.report());
  });

  it('from a second agent of the machine, on another state directory, leaves the first one and its replicas alone', async () => {
    const server = await start();
    const of = (stateDir: string): Partial<Hello> => ({
      ...{ machineId: 'm', bootId: 'b', hostname: 'h1' },
      ...{ stateDir, stateDirId: stateDir.slice(1), pid: 77 },
    });
    const first = await server.join('n1', { hello: of('/x') });
    await ready(server);
    const generation = [...first.shards.values()][0]?.generation;
    const second = dial(server, 'n1', { hello: of('/y') });
    second.sayHello();
    const { code, details } = await second.ended();
    expect(code).toBe(GrpcStatus.ALREADY_EXISTS);
    expect(details).toMatch(
      /^node id n1 is held by an agent that is connected \(pid 77 on h1, from 127\.0\.0\.1:\d+, state directory \/x\); stop it first/,
    );
    await acked(first, first.report());
    await ready(server);
    expect([...first.shards.values()].map((shard) => [shard.phase, shard.generation])).toEqual([
      ['ready', generation],
    ]);
    const { items } = (await server.admin('nodes')).json;
    expect(items[0].refused).toMatchObject([{ reason: { code: 'nodeIdTaken' } }]);
    expect((await server.admin('status')).json.warnings).toMatchObject([{ code: 'agent_refused' }]);
    const events = JSON.stringify((await server.admin('events')).json);
    expect(events).toContain('AgentRefused');
    expect(events).not.toContain('AgentReconnected');
    // One on the same directory is the same agent, started anew.
    const restarted = dial(server, 'n1', { hello: of('/x') });
    restarted.sayHello();
    await restarted.next('welcome');
    expect((await first.ended()).code).toBe(GrpcStatus.ABORTED);
  });

  it('asked as a question is answered, and nobody comes in', async () => {
    const server = await start();
    const ask = async (nodeId: string, hello: Partial<Hello>): Promise<FakeAgent> => {
      const agent = dial(server, nodeId, { hello: { pid: 78, ...hello } });
      agent.send(probeToWire(agent.hello));
      await agent.ended();
      return agent;
    };
    const free = await ask('n1', {});
    expect(free.received).toMatchObject([{ kind: 'welcome' }]);
    expect(JSON.stringify(free.received)).not.toContain('"holder"');
    expect((await server.admin('nodes')).json.items).toEqual([]);
    const holder = await server.join('n1', { hello: { stateDirId: 'd1', pid: 77 } });
    const own = await ask('n1', { stateDirId: 'd1' });
    expect(own.received).toMatchObject([
      { kind: 'welcome', welcome: { holder: expect.stringContaining('pid 77') as string } },
    ]);
    const other = await ask('n1', { stateDirId: 'd2' });
    expect(other.received).toMatchObject([{ kind: 'refusal', refusal: { code: 'nodeIdTaken' } }]);
    await acked(holder, holder.report());
    expect((await server.admin('nodes/n1')).json.refused).toBeUndefined();
  });

  it('with a new machine id under a free node id is taken: the disk moved to another machine', async () => {
    const server = await start();
    const before = await server.join('n1', { hello: { machineId: 'old' } });
    before.leave();
    await waitFor(() => nodeOf(server, 'n1')?.streamSinceMs === undefined);
    const after = await server.join('n1', { hello: { machineId: 'new', bootId: 'new' } });
    await acked(after, after.report());
  });

  it('with a clock years behind or ahead is a warning, and no judgement of the node', async () => {
    const server = await start();
    const agent = await server.join('n1', { hello: { wallMs: 86_400_000 } });
    await ready(server);
    agent.leave();
    await waitFor(() => nodeOf(server, 'n1')?.streamSinceMs === undefined);
    const again = await server.join('n1', { hello: { wallMs: 4_000_000_000_000 } });
    for (const [id, shard] of agent.shards) again.shards.set(id, shard);
    again.report();
    await ready(server);
    expect(nodeOf(server, 'n1')?.liveness).toBe('connected');
    expect(server.log.filter((line) => line.includes('clock differs'))).toHaveLength(2);
  });
});

describe('two hundred agents at once', () => {
  it('are all back after a restart of the server, in far fewer passes than hellos, and nothing is started twice', async () => {
    const server = await start(20);
    const ids = Array.from({ length: 200 }, (_, index) => `n${index}`);
    const first = await Promise.all(ids.map((id) => server.join(id)));
    await ready(server, 20);
    await server.stop();
    await server.start();
    const passesBefore = reconcilerOf(server).lastPass()?.plan.number ?? 0;
    const back = await Promise.all(
      ids.map(async (id, index) => {
        const agent = dial(server, id);
        for (const [shardId, shard] of first[index]?.shards ?? []) agent.shards.set(shardId, shard);
        agent.sayHello();
        await agent.next('welcome');
        agent.report();
        return agent;
      }),
    );
    await ready(server, 20);
    await waitFor(() =>
      reconcilerOf(server)
        .snapshot()
        .nodes.every(({ liveness }) => liveness === 'connected'),
    );
    expect(reconcilerOf(server).snapshot().nodes).toHaveLength(200);
    expect((reconcilerOf(server).lastPass()?.plan.number ?? 0) - passesBefore).toBeLessThan(100);
    expect(back.flatMap(({ received }) => received.filter(({ kind }) => kind === 'start'))).toEqual([]);
  }, 60_000);
});
