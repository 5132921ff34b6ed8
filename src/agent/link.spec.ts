import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { QUICK } from '../../test/support/agent/agent-world.js';
import { FakeGateway, type FakeGatewayOptions } from '../../test/support/agent/fake-gateway.js';
import { TcpProxy } from '../../test/support/agent/tcp-proxy.js';
import { waitFor } from '../../test/support/wait-for.js';
import type { Hello, NodeReport } from '../agent-protocol/messages.js';
import { systemClock, type Clock } from '../shared/clock.js';
import { createLogger } from '../shared/logger.js';
import { seededRandom } from '../shared/random.js';
import { DEFAULT_TIMINGS } from './limits.js';
import { AgentLink, type LinkDeps } from './link.js';

const HELLO: Omit<Hello, 'joinToken'> = {
  protocolVersion: 1,
  minProtocolVersion: 1,
  build: 'test',
  nodeId: 'n1',
  instanceId: 'i1',
  labels: {},
  highestTerm: 0,
};

const report = (sequence: number): NodeReport => ({
  sequence,
  complete: true,
  gpus: [],
  shards: [],
  engines: [],
  portsTaken: [],
  weightsPresent: [],
  conditions: [],
  uptimeMs: 1,
});

describe('the link', () => {
  let directory: string;
  let log: string[];
  let links: AgentLink[];
  let gateways: FakeGateway[];

  beforeEach(() => {
    directory = mkdtempSync(join(tmpdir(), 'llmgw-link-'));
    log = [];
    links = [];
    gateways = [];
  });
  afterEach(async () => {
    for (const link of links) await link.close();
    for (const gateway of gateways) gateway.close();
    rmSync(directory, { recursive: true, force: true });
  });

  async function gatewayWith(options: FakeGatewayOptions = {}, port = 0): Promise<FakeGateway> {
    const gateway = await FakeGateway.listen(options, port);
    gateways.push(gateway);
    return gateway;
  }
  function dial(server: string, change: Partial<LinkDeps> = {}): AgentLink {
    const link = new AgentLink({
      server,
      tls: undefined,
      joinTokenFile: undefined,
      clock: systemClock,
      random: seededRandom(1),
      logger: createLogger({ level: 'info', format: 'json' }, (line) => log.push(line)),
      timings: { ...DEFAULT_TIMINGS, ...QUICK },
      heartbeatMs: 100,
      hello: () => HELLO,
      report,
      highestTerm: () => 0,
      welcomed: () => {},
      order: () => ({ commandId: '?', outcome: 'accepted' }),
      fetchLogs: () => {},
      drained: () => {},
      closed: () => {},
      ...change,
    });
    links.push(link);
    link.start();
    return link;
  }

  it('reports at every heartbeat, and at once when something changed', async () => {
    const gateway = await gatewayWith({ heartbeatIntervalMs: 60_000 });
    const link = dial(gateway.address, { heartbeatMs: 60_000 });
    await waitFor(() => gateway.reports.length === 1);
    link.notify();
    link.notify();
    await waitFor(() => gateway.reports.length === 2, { what: 'one report for two changes' });
    const beating = await gatewayWith();
    dial(beating.address);
    await waitFor(() => beating.reports.length > 3, { what: 'heartbeats' });
    expect(beating.reports.map(({ sequence }) => sequence)).toEqual(
      beating.reports.map((_, index) => index + 1),
    );
  });

  it('notices a stream that went silent and comes back on a new connection', async () => {
    const gateway = await gatewayWith({ silenceLimitMs: 600 });
    const proxy = await TcpProxy.listen(gateway.port);
    const link = dial(`127.0.0.1:${proxy.port}`, {
      timings: { ...DEFAULT_TIMINGS, ...QUICK, welcomeTimeoutMs: 300 },
    });
    try {
      await waitFor(() => link.connected && gateway.reports.length > 1);
      const { connections } = proxy;
      proxy.fallSilent();
      await waitFor(() => !link.connected, { what: 'the silence to be noticed' });
      proxy.wake();
      await waitFor(() => link.connected, { what: 'a new session' });
      expect(proxy.connections).toBeGreaterThan(connections);
      expect(log.some((line) => line.includes('nothing heard for'))).toBe(true);
    } finally {
      proxy.close();
    }
  });

  it('comes back after the server was away, and says why only once', async () => {
    const gateway = await gatewayWith();
    const link = dial(gateway.address);
    await waitFor(() => link.connected);
    gateway.close();
    await waitFor(() => log.filter((line) => line.includes('no link')).length > 0);
    await waitFor(() => !link.connected);
    const again = await gatewayWith({}, gateway.port);
    await waitFor(() => link.connected, { what: 'a new session' });
    await waitFor(() => again.lastReport);
    const reasons = log
      .filter((line) => line.includes('no link'))
      .map((line) => (JSON.parse(line) as { reason: string }).reason);
    expect(reasons.every((reason, index) => reason !== reasons[index - 1])).toBe(true);
  });

  it('backs off long after a refusal and takes up a new token at the next dial', async () => {
    const tokens: (string | undefined)[] = [];
    const gateway = await gatewayWith({
      onHello: (stream, count) => {
        const last = gateway.messages.at(-1);
        tokens.push(last?.kind === 'hello' ? last.hello.joinToken : undefined);
        if (count === 1)
          gateway.refuse(stream, {
            code: 'unauthenticated',
            message: 'the join token is not known',
            serverBuild: '9',
            serverProtocolVersion: 1,
          });
        else gateway.welcome(stream);
      },
    });
    const joinTokenFile = join(directory, 'token');
    writeFileSync(joinTokenFile, 'old\n');
    const link = dial(gateway.address, {
      joinTokenFile,
      timings: { ...DEFAULT_TIMINGS, ...QUICK, refusedPauseMs: 400 },
    });
    await waitFor(() => log.some((line) => line.includes('the join token is not known (server 9)')));
    writeFileSync(joinTokenFile, 'new\n');
    await waitFor(() => link.connected);
    expect(tokens).toEqual(['old', 'new']);
  });

  it('does not listen to a server of a lower term', async () => {
    const gateway = await gatewayWith({ term: 3 });
    dial(gateway.address, { highestTerm: () => 5 });
    await waitFor(() => log.some((line) => line.includes('speaks for term 3')));
    expect(gateway.reports).toEqual([]);
  });

  it('does not send the same logs again when the message was too long for the server', async () => {
    const asked: boolean[] = [];
    const gateway = await gatewayWith({ silenceLimitMs: 5_000 });
    dial(gateway.address, {
      report: (sequence, _max, withTails) => {
        asked.push(withTails);
        const big = { type: 'x'.repeat(6_000_000), reason: '', blocksPlacement: false };
        return withTails ? { ...report(sequence), conditions: [big] } : report(sequence);
      },
    });
    await waitFor(() => gateway.lastReport, { what: 'a report that arrives' });
    expect(asked.slice(0, 2)).toEqual([true, false]);
  });

  const HEARTBEAT_MS = 7;
  it('keeps only the newest report for a server that does not read', async () => {
    let built = 0;
    let beats = 0;
    // Heartbeats that passed since a report was made show that none is made, not that none was due.
    let beatsAtBuild = 0;
    const clock: Clock = {
      monotonicMs: () => systemClock.monotonicMs(),
      wallMs: () => systemClock.wallMs(),
      setTimer: (delayMs, fn) =>
        systemClock.setTimer(delayMs, () => {
          if (delayMs === HEARTBEAT_MS) beats += 1;
          fn();
        }),
    };
    const gateway = await gatewayWith({ acks: false, silenceLimitMs: 60_000 });
    const proxy = await TcpProxy.listen(gateway.port);
    const link = dial(`127.0.0.1:${proxy.port}`, {
      clock,
      heartbeatMs: HEARTBEAT_MS,
      report: (sequence) => {
        built += 1;
        beatsAtBuild = beats;
        const filler = { type: 'Filler', reason: 'x'.repeat(400), blocksPlacement: false };
        return { ...report(sequence), conditions: Array.from({ length: 60 }, () => filler) };
      },
    });
    try {
      await waitFor(() => link.connected && built > 2);
      gateway.streams.at(-1)?.pause();
      const before = built;
      // HTTP/2 windows and buffers fill, then nothing more is made.
      await waitFor(() => built > before && beats - beatsAtBuild > 20, {
        what: 'the outbox to be full',
        deadlineMs: 15_000,
      });
      const full = built;
      gateway.streams.at(-1)?.resume();
      await waitFor(() => built > full, { what: 'reports again' });
    } finally {
      proxy.close();
    }
  });

  it('hands over a last report when it ends', async () => {
    const gateway = await gatewayWith({ heartbeatIntervalMs: 60_000 });
    const link = dial(gateway.address, { heartbeatMs: 60_000 });
    await waitFor(() => gateway.reports.length === 1);
    await link.close();
    await waitFor(() => gateway.reports.length === 2, { what: 'the last report' });
  });
});
