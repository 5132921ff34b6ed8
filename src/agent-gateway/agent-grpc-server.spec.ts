import {
  credentials,
  loadPackageDefinition,
  ServerCredentials,
  type ChannelCredentials,
  type ServiceDefinition,
  type UntypedServiceImplementation,
} from '@grpc/grpc-js';
import { once } from 'node:events';
import { connect } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { TEST_TLS } from '../../test/support/test-tls.js';
import { waitFor } from '../../test/support/wait-for.js';
import {
  agentPackageDefinition,
  createAgentGatewayClient,
  type AgentStream,
  type GatewayStream,
} from '../agent-protocol/proto.js';
import { systemClock } from '../shared/clock.js';
import { AgentGrpcServer } from './agent-grpc-server.js';
import { IN_HAND_MAX } from './doorstep.js';

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).toReversed()) await cleanup();
});

/** A server that acknowledges whatever it is told. */
async function start(serverCredentials: ServerCredentials): Promise<AgentGrpcServer> {
  const server = new AgentGrpcServer({ host: '127.0.0.1', port: 0 }, serverCredentials, systemClock);
  const grpc = await server.createClient();
  const root = loadPackageDefinition(agentPackageDefinition()) as unknown as {
    llmgw: { agent: { v1: { AgentGateway: { service: ServiceDefinition } } } };
  };
  const connected = (stream: GatewayStream): void => {
    stream.on('error', () => undefined);
    stream.on('data', () => {
      stream.write({ ack: { sequence: '1' } });
      server.answered(stream.getPeer());
    });
  };
  const service: UntypedServiceImplementation = { Connect: connected as never };
  grpc.addService(root.llmgw.agent.v1.AgentGateway.service, service);
  cleanups.push(() => server.close());
  return server;
}

/** Says something; resolves with the answer. */
async function ask(
  server: AgentGrpcServer,
  channel: ChannelCredentials,
  options = {},
): Promise<{ stream: AgentStream; answer: unknown }> {
  const client = createAgentGatewayClient(`127.0.0.1:${server.port}`, channel, options);
  const stream = client.connect();
  stream.on('error', () => undefined);
  cleanups.push(() => client.close());
  stream.write({ pong: { nonce: '1' } });
  const [answer] = (await once(stream, 'data')) as unknown[];
  return { stream, answer };
}

describe('the listener of the agents', () => {
  it('answers a crowd that comes at once, also beside those that say nothing', async () => {
    const server = await start(ServerCredentials.createInsecure());
    for (let index = 0; index < IN_HAND_MAX; index += 1) {
      const silent = connect(server.port ?? 0, '127.0.0.1');
      await once(silent, 'connect');
      cleanups.push(() => silent.destroy());
    }
    const crowd = Array.from({ length: 2 * IN_HAND_MAX }, () => ask(server, credentials.createInsecure()));
    for (const { answer } of await Promise.all(crowd))
      expect(answer).toMatchObject({ ack: { sequence: '1' } });
  });

  it('speaks TLS', async () => {
    const own = { private_key: Buffer.from(TEST_TLS.key), cert_chain: Buffer.from(TEST_TLS.cert) };
    const server = await start(ServerCredentials.createSsl(null, [own], false));
    const trusting = credentials.createSsl(Buffer.from(TEST_TLS.cert));
    const { answer } = await ask(server, trusting, { 'grpc.ssl_target_name_override': 'engine.test' });
    expect(answer).toMatchObject({ ack: { sequence: '1' } });
  });

  it('closes although a stream is held open, and takes nobody any more', async () => {
    const server = await start(ServerCredentials.createInsecure());
    const { stream } = await ask(server, credentials.createInsecure());
    let ended = false;
    stream.on('status', () => (ended = true));
    await server.close();
    await waitFor(() => ended);
    const late = connect(server.port ?? 0, '127.0.0.1');
    const [error] = (await once(late, 'error')) as [NodeJS.ErrnoException];
    expect(error.code).toBe('ECONNREFUSED');
  });

  it('says which address is taken', async () => {
    const first = await start(ServerCredentials.createInsecure());
    const address = { host: '127.0.0.1', port: first.port ?? 0 };
    const second = new AgentGrpcServer(address, ServerCredentials.createInsecure(), systemClock);
    await expect(second.createClient()).rejects.toThrow(
      `EADDRINUSE: address already in use 127.0.0.1:${address.port}`,
    );
  });
});
