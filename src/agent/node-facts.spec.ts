import { describe, expect, it } from 'vitest';
import { startCommand } from '../../test/support/agent/agent-world.js';
import { reportToWire } from '../agent-protocol/to-wire.js';
import { agentPackageDefinition, MESSAGE_LIMIT_BYTES } from '../agent-protocol/proto.js';
import type { ShardReport } from '../domain/cluster.js';
import { LOG_TAIL_MAX_BYTES } from './limits.js';
import { addresses } from './node-facts.js';
import { listenerOf, listeningPorts } from './ports-in-use.js';
import { createServer } from 'node:net';
import { boundTails } from './report-builder.js';

const entry = (address: string, family: 'IPv4' | 'IPv6', scopeid = 0) =>
  ({ address, family, scopeid, netmask: '', mac: '', internal: false, cidr: null }) as never;

describe('addresses', () => {
  const interfaces = {
    lo: [entry('127.0.0.1', 'IPv4')],
    eth0: [entry('fe80::1', 'IPv6', 2), entry('10.0.0.7', 'IPv4')],
    eth1: [entry('fe80::2', 'IPv6', 3), entry('2001:db8::7', 'IPv6')],
  };
  it.each<[string | undefined, string | undefined, string, string]>([
    [undefined, undefined, '127.0.0.1', '127.0.0.1'],
    [undefined, 'eth0', '10.0.0.7', '10.0.0.7'],
    [undefined, 'eth1', '2001:db8::7', '2001:db8::7'],
    ['10.0.0.7', undefined, '10.0.0.7', '10.0.0.7'],
    ['gpu7.example', 'eth0', 'gpu7.example', '10.0.0.7'],
    ['gpu7.example', undefined, 'gpu7.example', '0.0.0.0'],
    ['127.0.5.1', undefined, '127.0.5.1', '127.0.5.1'],
    ['localhost', undefined, 'localhost', '127.0.0.1'],
  ])('address %s, interface %s: reached at %s, listening on %s', (configured, name, address, bindHost) => {
    expect(addresses(configured, name, interfaces)).toEqual({ address, bindHost });
  });

  it('refuses an interface that is not there, naming those that are', () => {
    expect(() => addresses(undefined, 'eth9', interfaces)).toThrow(
      'eth9 has no address; this machine has lo, eth0, eth1',
    );
  });
});

describe('listeningPorts', () => {
  it('reads who listens, and nothing else', () => {
    const table = [
      '  sl  local_address rem_address   st tx_queue',
      '   0: 0100007F:4E21 00000000:0000 0A 00000000:00000000',
      '   1: 0100007F:4E22 0100007F:4E21 01 00000000:00000000',
      '   2: 00000000:0016 00000000:0000 0A 00000000:00000000',
      '   3: 00000000000000000000000000000000:4E20 00000000000000000000000000000000:0000 0A x',
      'garbage',
    ].join('\n');
    expect(listeningPorts([table, undefined])).toEqual([20_000, 20_001]);
  });
});

describe('listenerOf', () => {
  it('names the process that holds a port', async () => {
    const server = createServer();
    await new Promise<void>((resolve) => {
      server.listen(0, '127.0.0.1', resolve);
    });
    const address = server.address();
    const port = typeof address === 'object' && address !== null ? address.port : 0;
    expect(listenerOf(port)).toBe(process.pid);
    await new Promise((resolve) => {
      server.close(resolve);
    });
    expect(listenerOf(port)).toBeUndefined();
  });
});

describe('a report with many failed shards', () => {
  const shard = (index: number, logTail: string): ShardReport => ({
    shardId: `r${index}-0`,
    replicaId: `r${index}`,
    model: 'm',
    profile: 'p',
    generation: 1,
    rank: 0,
    phase: 'exited',
    gpuUuids: [],
    ports: startCommand(1).ports,
    logTail,
  });

  it('stays within one message, and every shard is in it with the end of its log', () => {
    const line = `${'x'.repeat(200)}\n`;
    const shards = Array.from({ length: 64 }, (_, index) =>
      shard(index, `${line.repeat(80)}ERROR: out of memory`),
    );
    const bounded = boundTails(shards, MESSAGE_LIMIT_BYTES / 2);
    expect(bounded).toHaveLength(64);
    for (const { logTail } of bounded) {
      expect(logTail).toMatch(/ERROR: out of memory$/);
      expect(logTail).toMatch(/^…\[earlier output cut\]/);
    }
    const wire = reportToWire({
      sequence: 1,
      complete: true,
      gpus: [],
      shards: bounded,
      engines: [],
      portsTaken: [],
      weightsPresent: [],
      conditions: [],
      uptimeMs: 1,
    });
    const service = agentPackageDefinition()['llmgw.agent.v1.AgentGateway'] as unknown as {
      Connect: { requestSerialize: (message: unknown) => Buffer };
    };
    expect(service.Connect.requestSerialize(wire).length).toBeLessThan(MESSAGE_LIMIT_BYTES);
  });

  it('gives one failed shard its whole tail, and none at all when the server wants none', () => {
    const tail = 'x'.repeat(LOG_TAIL_MAX_BYTES - 1);
    expect(boundTails([shard(1, tail)], MESSAGE_LIMIT_BYTES / 2)[0]?.logTail).toBe(tail);
    expect(boundTails([shard(1, tail)], 0)[0]?.logTail).toBeUndefined();
  });
});
