import { credentials } from '@grpc/grpc-js';
import { mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { Agent, get } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect } from 'node:tls';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ControlServer, simModel } from '../../test/support/control-server.js';
import { FakeAgent } from '../../test/support/fake-agent.js';
import { SetClock } from '../../test/support/set-clock.js';
import { EXPIRED_TLS, FUTURE_TLS, RENEWED_TLS, TEST_TLS } from '../../test/support/test-tls.js';
import { waitFor } from '../../test/support/wait-for.js';
import { AuthConfig } from '../config/auth-config.js';
import { ConfigError } from '../shared/errors.js';
import { ListenerCertificate } from './listener-certificates.js';

interface Pair {
  readonly cert: string;
  readonly key: string;
}

let directory: string;
let files: { certFile: string; keyFile: string; caFile: string };
const cleanups: (() => unknown)[] = [];

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'llmgw-certificates-'));
  const at = (name: string): string => join(directory, name);
  files = { certFile: at('own.crt'), keyFile: at('own.key'), caFile: at('ca.crt') };
  put(files.caFile, `${TEST_TLS.cert}\n`);
  pair(TEST_TLS);
});
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).toReversed()) await cleanup();
  rmSync(directory, { recursive: true, force: true });
});

/** As tools that renew do it: written beside and renamed into place. */
function put(file: string, text: string): void {
  writeFileSync(`${file}.new`, text);
  renameSync(`${file}.new`, file);
}

function pair({ cert, key }: Pair): void {
  put(files.certFile, cert);
  put(files.keyFile, key);
}

function folder(file: string): void {
  rmSync(file);
  mkdirSync(file);
}

describe('the certificate of a listener', () => {
  let clock: SetClock;
  let told: (string | undefined)[];
  let taken: string[];
  let one: ListenerCertificate;

  beforeEach(() => {
    clock = new SetClock(Date.parse('2026-12-01T00:00:00Z'));
    told = [];
    taken = [];
    one = new ListenerCertificate('agent', files, clock);
    one.follow(({ cert }) => taken.push(cert?.toString() ?? ''));
  });

  /** Looks until there is nothing to wait for. */
  function settle(): void {
    for (let looks = 0, dueMs: number | undefined = 0; dueMs !== undefined; looks += 1) {
      if (looks > 10) throw new Error('it never settles');
      clock.advance(dueMs);
      dueMs = one.look((_certificate, problem) => told.push(problem?.message));
    }
  }

  it('is taken anew when both files were replaced, and told once', () => {
    pair(RENEWED_TLS);
    settle();
    expect(taken).toEqual([RENEWED_TLS.cert]);
    expect([told, one.problem]).toEqual([[undefined], undefined]);
    settle();
    expect(told).toHaveLength(1);
  });

  it('waits for the key of a new certificate without a word', () => {
    put(files.certFile, RENEWED_TLS.cert);
    let dueMs: number | undefined;
    for (let looks = 0; looks < 2; looks += 1) {
      dueMs = one.look((_certificate, problem) => told.push(problem?.message));
      clock.advance(200);
    }
    expect(dueMs).toBeGreaterThan(0);
    put(files.keyFile, RENEWED_TLS.key);
    settle();
    expect([taken, told]).toEqual([[RENEWED_TLS.cert], [undefined]]);
  });

  it.each<[string, () => void, RegExp]>([
    [
      'is cut off',
      () => put(files.certFile, `${RENEWED_TLS.cert}\n${TEST_TLS.cert.slice(0, 200)}`),
      /own\.crt is cut off/,
    ],
    ['is empty', () => put(files.certFile, ''), /own\.crt holds no certificate/],
    ['is gone', () => rmSync(files.certFile), /no such file.*own\.crt/],
    ['is a folder', () => folder(files.certFile), /own\.crt is not a regular file/],
    [
      'has another key',
      () => put(files.certFile, RENEWED_TLS.cert),
      /own\.key does not belong to the certificate/,
    ],
    ['holds no key', () => put(files.keyFile, 'nothing'), /own\.key holds no private key/],
    ['has ended', () => pair(EXPIRED_TLS), /own\.crt ended at 2021-01-01/],
    ['has an authority that is none', () => put(files.caFile, 'nothing'), /ca\.crt holds no certificate/],
    ['has an authority that ended', () => put(files.caFile, EXPIRED_TLS.cert), /ca\.crt ended at 2021-01-01/],
  ])('stays as it was while the new one %s, says so once, and when that is over', (_name, spoil, why) => {
    spoil();
    settle();
    settle();
    expect(told).toEqual([expect.stringMatching(why)]);
    expect(one.problem).toMatch(why);
    expect([taken, one.endsWallMs]).toEqual([[], Date.parse('2120-01-01T00:00:00Z')]);
    rmSync(files.certFile, { recursive: true, force: true });
    pair(RENEWED_TLS);
    put(files.caFile, TEST_TLS.cert);
    settle();
    expect(taken).toEqual([RENEWED_TLS.cert]);
    expect([told.length, told.at(-1), one.problem]).toEqual([2, undefined, undefined]);
  });

  it('says that all is well when the files are what they were', () => {
    put(files.certFile, 'nothing');
    settle();
    put(files.certFile, TEST_TLS.cert);
    settle();
    expect([told.length, told.at(-1), one.problem, taken]).toEqual([2, undefined, undefined, []]);
  });

  it('takes one that is not valid yet when its time comes', () => {
    pair(FUTURE_TLS);
    settle();
    expect(told).toEqual([expect.stringMatching(/holds only from 2100-01-01/)]);
    expect(taken).toEqual([]);
    clock.advance(Date.parse('2100-01-01T00:00:01Z') - clock.wallMs());
    settle();
    expect([taken, told.at(-1)]).toEqual([[FUTURE_TLS.cert], undefined]);
  });

  it('ends the start when nothing can be served with it, naming setting and file; one that has ended still serves', () => {
    put(files.keyFile, RENEWED_TLS.key);
    expect(() => new ListenerCertificate('agent', files, clock)).toThrow(ConfigError);
    expect(() => new ListenerCertificate('agent', files, clock)).toThrow(
      /auth\.agents\.tls: the key in .*own\.key/,
    );
    rmSync(files.keyFile);
    expect(() => new ListenerCertificate('admin', files, clock)).toThrow(
      /auth\.admin\.tls: .*no such file.*own\.key/,
    );
    pair(EXPIRED_TLS);
    expect(new ListenerCertificate('agent', files, clock).untimely()?.kind).toBe('expired');
  });
});

describe('a server whose certificates are renewed', () => {
  async function start(): Promise<ControlServer> {
    const auth = new AuthConfig();
    auth.agents.tls = files;
    const server = await ControlServer.start({ auth, models: [simModel('m1')] });
    cleanups.push(() => server.dispose());
    return server;
  }

  const channel = (own: Pair) =>
    credentials.createSsl(
      Buffer.from(`${TEST_TLS.cert}\n${RENEWED_TLS.cert}\n`),
      Buffer.from(own.key),
      Buffer.from(own.cert),
    );

  /** The certificate that a new connection is shown, PEM without line ends. */
  async function shown(port: number, own: Pair = TEST_TLS, alpn = 'h2'): Promise<string> {
    const socket = connect({
      port,
      host: '127.0.0.1',
      ...own,
      rejectUnauthorized: false,
      ALPNProtocols: [alpn],
    });
    cleanups.push(() => socket.destroy());
    return new Promise((resolve, reject) => {
      socket.once('error', reject);
      socket.once('secureConnect', () => {
        resolve(socket.getPeerCertificate().raw.toString('base64'));
        socket.destroy();
      });
    });
  }

  const raw = ({ cert }: Pair): string => cert.replace(/-----[^-]+-----|\s/g, '');

  const eventsOf = async (server: ControlServer, type: string): Promise<unknown[]> =>
    (await server.admin(`events?type=${type}`)).json.items as unknown[];

  it('shows the new one to new agents while streams of before go on; a new authority counts from then on', async () => {
    const server = await start();
    const port = server.agentPort;
    const old = await server.join('n1', { channel: channel(TEST_TLS) });
    const stranger = FakeAgent.dial({ port, nodeId: 'n2', channel: channel(RENEWED_TLS) });
    stranger.sayHello();
    cleanups.push(() => stranger.leave());
    expect((await stranger.ended()).code).toBe(14);
    expect(await shown(port)).toBe(raw(TEST_TLS));

    pair(RENEWED_TLS);
    put(files.caFile, RENEWED_TLS.cert);
    server.server.reload('test');
    await waitFor(async () => (await eventsOf(server, 'CertificateRenewed')).length === 1);
    expect(await shown(port, RENEWED_TLS)).toBe(raw(RENEWED_TLS));
    const renewed = await server.join('n2', { channel: channel(RENEWED_TLS) });
    const outdated = FakeAgent.dial({ port, nodeId: 'n3', channel: channel(TEST_TLS) });
    outdated.sayHello();
    cleanups.push(() => outdated.leave());
    expect((await outdated.ended()).code).toBe(14);

    // The stream of before lives: what it says is heard.
    const from = old.received.length;
    old.report();
    await old.next('ack', from);
    expect([old.status, renewed.status]).toEqual([undefined, undefined]);
  });

  it('keeps the one before when the new is of no use, and says so wherever somebody looks', async () => {
    const server = await start();
    put(files.certFile, TEST_TLS.cert.slice(0, 300));
    server.server.reload('test');
    await waitFor(async () => (await eventsOf(server, 'CertificateRefused')).length === 1);
    const status = (await server.admin('status')).json;
    expect(status.certificates).toMatchObject([
      {
        listener: 'agent',
        file: files.certFile,
        endsAt: '2120-01-01T00:00:00.000Z',
        problem: expect.stringContaining('own.crt is cut off') as string,
      },
    ]);
    expect(status.warnings).toContainEqual(
      expect.objectContaining({
        code: 'certificate_refused',
        message: expect.stringMatching(/of the agent listener ends at 2120.*own\.crt is cut off/) as string,
      }),
    );
    const ready = await server.admin('/readyz?verbose');
    expect(ready.status).toBe(200);
    expect(ready.text).toMatch(/\[\+\] agent-certificate ok: ends at 2120-01-01.*not taken: .*own\.crt/);
    const metrics = (await server.admin('/metrics')).text;
    expect(metrics).toContain('llmgw_certificate_last_reload_successful{listener="agent"} 0');
    expect(metrics).toMatch(/llmgw_certificate_expiry_seconds\{listener="agent"\} 4733510400/);
    expect(server.log.filter((line) => line.includes('a new certificate is not taken'))).toHaveLength(1);
    const agent = await server.join('n1', { channel: channel(TEST_TLS) });
    expect(agent.status).toBeUndefined();
  });

  it('is renewed for operators too, and connections that are open go on', async () => {
    const auth = new AuthConfig();
    auth.admin.tls = { certFile: files.certFile, keyFile: files.keyFile };
    const server = await ControlServer.start({ auth, adminListen: 'localhost:0', models: [simModel('m1')] });
    cleanups.push(() => server.dispose());
    const port = Number(server.server.addresses.admin.split(':').at(-1));
    const agent = new Agent({ keepAlive: true, maxSockets: 1, rejectUnauthorized: false });
    cleanups.push(() => agent.destroy());
    const ask = () =>
      new Promise<{ status: number | undefined; reused: boolean }>((resolve, reject) => {
        const asked = get({ host: '127.0.0.1', port, path: '/livez', agent }, (response) => {
          response
            .resume()
            .on('end', () => resolve({ status: response.statusCode, reused: asked.reusedSocket }));
        }).on('error', reject);
      });
    expect(await ask()).toEqual({ status: 200, reused: false });
    const now = () => shown(port, TEST_TLS, 'http/1.1');
    expect(await now()).toBe(raw(TEST_TLS));
    pair(RENEWED_TLS);
    server.server.reload('test');
    await waitFor(async () => (await now()) === raw(RENEWED_TLS));
    expect(await ask()).toEqual({ status: 200, reused: true });
  });
});
