import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { QUICK } from '../../test/support/agent/agent-world.js';
import { emptyReport } from '../../test/support/agent/empty-report.js';
import { FakeGateway, type FakeGatewayOptions } from '../../test/support/agent/fake-gateway.js';
import { TcpProxy } from '../../test/support/agent/tcp-proxy.js';
import { EXPIRED_TLS, RENEWED_TLS, TEST_TLS } from '../../test/support/test-tls.js';
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

const report = (sequence: number): NodeReport => emptyReport({ sequence });

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

  it('says at each refusal why, and goes on asking: nobody but a person can end it', async () => {
    const gateway = await gatewayWith({
      onHello: (stream) =>
        gateway.refuse(stream, {
          ...{ code: 'nodeIdTaken', message: 'node id n1 is held by pid 7; stop it first' },
          ...{ serverBuild: '9', serverProtocolVersion: 1 },
        }),
    });
    dial(gateway.address, {
      timings: { ...DEFAULT_TIMINGS, ...QUICK, refusedPauseMs: 10, takenPauseMs: 10 },
    });
    await waitFor(() => gateway.hellos > 2);
    const told = log.filter((line) => line.includes('does not take this agent'));
    expect(told.length).toBeGreaterThan(1);
    expect(JSON.parse(told[0] ?? '')).toMatchObject({
      level: 'error',
      reason: 'refused: node id n1 is held by pid 7; stop it first (server 9)',
    });
  });

  it('asks soon while another holds its node id, says so once, and is in when that one is gone', async () => {
    const gateway = await gatewayWith({
      onHello: (stream, count) => {
        const message = 'node id n1 is held by pid 7; stop it first';
        if (count > 3) gateway.welcome(stream);
        else
          gateway.refuse(stream, {
            ...{ code: 'nodeIdTaken', message, serverBuild: '9', serverProtocolVersion: 1 },
          });
      },
    });
    const timings = { ...DEFAULT_TIMINGS, ...QUICK, refusedPauseMs: 3_600_000, takenPauseMs: 10 };
    const link = dial(gateway.address, { timings });
    await waitFor(() => link.connected);
    expect(log.filter((line) => line.includes('does not take this agent'))).toHaveLength(1);
  });

  it('says once that the certificate of the server has ended, and comes back by itself when there is a new one', async () => {
    const caFile = join(directory, 'ca.crt');
    const both = (cert: string) => `${cert}\n${TEST_TLS.cert}\n`;
    writeFileSync(caFile, both(EXPIRED_TLS.cert));
    const old = await gatewayWith({ tls: EXPIRED_TLS });
    const link = dial(old.address, { tls: { caFile } });
    const told = () => log.filter((line) => line.includes('certificate has expired'));
    await waitFor(() => told().length > 0);
    expect(link.connected).toBe(false);
    old.close();
    await gatewayWith({ tls: TEST_TLS }, old.port);
    await waitFor(() => link.connected);
    expect(told()).toHaveLength(1);
  });

  it('reads its own files anew at each dial: a certificate that was not there yet is taken when it is', async () => {
    const caFile = join(directory, 'ca.crt');
    const gateway = await gatewayWith({ tls: TEST_TLS });
    const link = dial(gateway.address, {
      tls: { caFile },
      timings: { ...DEFAULT_TIMINGS, ...QUICK, refusedPauseMs: 50 },
    });
    await waitFor(() => log.some((line) => line.includes('cannot dial')));
    writeFileSync(caFile, TEST_TLS.cert);
    await waitFor(() => link.connected);
    expect(log.filter((line) => line.includes('cannot dial'))).toHaveLength(1);
  });

  it.each([
    ['is cut off', (file: string) => writeFileSync(file, TEST_TLS.cert.slice(0, 300))],
    ['is gone', (file: string) => rmSync(file)],
    ['has ended', (file: string) => writeFileSync(file, EXPIRED_TLS.cert)],
  ])(
    'comes back with the certificates of before while a new file %s, and says so once',
    async (_name, spoil) => {
      const caFile = join(directory, 'ca.crt');
      writeFileSync(caFile, TEST_TLS.cert);
      const gateway = await gatewayWith({ tls: TEST_TLS });
      const link = dial(gateway.address, { tls: { caFile } });
      await waitFor(() => link.connected);
      const told = () => log.filter((line) => line.includes('the certificates in the files are not used'));
      spoil(caFile);
      for (const hellos of [1, 2]) {
        gateway.dropStreams();
        await waitFor(() => gateway.hellos > hellos && link.connected);
      }
      expect(told()).toHaveLength(1);
      expect(told()[0]).toContain(caFile);
      writeFileSync(caFile, `${RENEWED_TLS.cert}\n${TEST_TLS.cert}\n`);
      gateway.dropStreams();
      await waitFor(() => gateway.hellos > 3 && link.connected);
      expect(log.filter((line) => line.includes('are in use again'))).toHaveLength(1);
    },
  );

  it('does not listen to a server of a lower term', async () => {
    const gateway = await gatewayWith({ term: 3 });
    dial(gateway.address, { highestTerm: () => 5 });
    await waitFor(() => log.some((line) => line.includes('speaks for term 3')));
    expect(gateway.reports).toEqual([]);
  });

  it('does not send the same logs again when the message was too long for the server', async () => {
    const asked: boolean[] = [];
    // One report a stream: on a slow machine a second could be made before the first has broken it.
    const gateway = await gatewayWith({ silenceLimitMs: 60_000, heartbeatIntervalMs: 30_000 });
    dial(gateway.address, {
      heartbeatMs: 30_000,
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
