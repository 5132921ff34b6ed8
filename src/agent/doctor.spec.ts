import { spawnSync } from 'node:child_process';
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { createServer as createHttpServer } from 'node:http';
import { createServer as createHttp2Server } from 'node:http2';
import type { AddressInfo, Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { FakeGateway } from '../../test/support/agent/fake-gateway.js';
import { FakeTool } from '../../test/support/agent/fake-tool.js';
import { EXPIRED_TLS, RENEWED_TLS, TEST_TLS } from '../../test/support/test-tls.js';
import { AgentConfig, AgentEngineConfig } from '../config/agent-config.js';
import { systemClock } from '../shared/clock.js';
import { examine, type DoctorDeps } from './doctor.js';
import { findingText, type Finding } from './finding.js';
import { systemProcessTable } from './process-table.js';
import { EMPTY_STATE, StateFile } from './state-file.js';

describe('the doctor', () => {
  let directory: string;
  let config: AgentConfig;
  let tool: FakeTool;
  const files = new Map<string, string>();

  beforeEach(() => {
    directory = mkdtempSync(join(tmpdir(), 'llmgw-doctor-'));
    tool = new FakeTool('vllm');
    config = new AgentConfig();
    config.stateDir = join(directory, 'state');
    config.server = '127.0.0.1:1';
    files.clear();
    files.set('/proc/sys/net/ipv4/ip_local_port_range', '32768\t60999\n');
    files.set(
      '/proc/self/limits',
      'Max open files            1048576              1048576              files\n',
    );
  });
  afterEach(() => {
    rmSync(directory, { recursive: true, force: true });
    tool.remove();
  });

  const deps = (change: Partial<DoctorDeps> = {}): DoctorDeps => ({
    clock: systemClock,
    env: { PATH: tool.directory, HF_HOME: join(directory, 'hf') },
    processes: systemProcessTable(),
    gpuDriver: undefined,
    readFile: (path) => files.get(path),
    pid: 4242,
    waits: () => Promise.reject(new Error('no koffi')),
    listening: () => [],
    listenerOf: () => undefined,
    ...change,
  });
  const found = async (subject: string, change: Partial<DoctorDeps> = {}): Promise<Finding[]> =>
    (await examine(config, deps(change))).filter((finding) => finding.subject === subject);
  function offer(kind: 'vllm' | 'llamacpp'): void {
    config.engines = { [kind]: new AgentEngineConfig() };
  }

  it('finds nothing to mend on a machine that has what it needs', async () => {
    const gateway = await FakeGateway.listen();
    config.server = gateway.address;
    offer('vllm');
    tool.answer([{ when: '--version', stdout: 'vLLM 0.20.1\n' }]);
    const findings = await examine(config, deps());
    expect(findings.filter(({ level }) => level === 'problem')).toEqual([]);
    expect(findings).toContainEqual({
      subject: 'engine vllm',
      level: 'ok',
      message: `${tool.path}, vLLM 0.20.1`,
    });
    expect(findings).toContainEqual({
      subject: 'server',
      level: 'ok',
      message: `${config.server} would take this agent`,
    });
    gateway.close();
  });

  it.each<[string, () => Server]>([
    ['a plain HTTP/2 listener', () => createHttp2Server((_, response) => response.writeHead(404).end())],
    ['an HTTP/1 listener', () => createHttpServer((_, response) => response.writeHead(404).end())],
    [
      'a gRPC service of somebody else',
      () =>
        createHttp2Server((_, response) => {
          response.writeHead(200, { 'content-type': 'application/grpc', 'grpc-status': '12' }).end();
        }),
    ],
  ])('%s is not taken for the server', async (_, make) => {
    const server = make();
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    config.server = `127.0.0.1:${(server.address() as AddressInfo).port}`;
    try {
      expect(await found('server')).toMatchObject([
        {
          level: 'problem',
          message: expect.stringContaining(
            "answers, but is not llmgw's agent listener (agentListen, default 8082): ",
          ) as string,
        },
      ]);
    } finally {
      server.close();
    }
  });

  it('tells what the server would answer: who holds the node id, or why the agent is not taken', async () => {
    const refusal = { code: 'nodeIdTaken', message: 'node id n1 is held by pid 7' } as const;
    const gateway: FakeGateway = await FakeGateway.listen({
      onProbe: (stream) => gateway.refuse(stream, { ...refusal, serverBuild: '9', serverProtocolVersion: 1 }),
    });
    config.server = gateway.address;
    try {
      expect(await found('node')).toContainEqual(
        expect.objectContaining({ level: 'problem', message: refusal.message }),
      );
      expect(await found('server')).toEqual([]);
      expect(gateway.messages.map(({ kind }) => kind)).toEqual(['probe', 'probe']);
    } finally {
      gateway.close();
    }
  });

  it('says of a loopback address when it works', async () => {
    config.address = '127.0.0.1';
    expect(await found('address')).toMatchObject([
      { level: 'warning', mend: 'address 127.0.0.1 only works when the server runs on this machine' },
    ]);
  });

  it("compares its clock with the server's, without becoming its agent", async () => {
    const gateway = await FakeGateway.listen();
    config.server = gateway.address;
    try {
      expect(await found('clock')).toContainEqual({
        subject: 'clock',
        level: 'ok',
        message: "agrees with the server's",
      });
      const clock = { ...systemClock, wallMs: () => Date.now() + 90_000 };
      clock.monotonicMs = () => systemClock.monotonicMs();
      clock.setTimer = (delayMs, fn) => systemClock.setTimer(delayMs, fn);
      expect(await found('clock', { clock })).toMatchObject([
        { level: 'warning', message: expect.stringMatching(/(?:89|9\d) s ahead of the server's/) as string },
      ]);
      expect(gateway.messages.map(({ kind }) => kind)).toEqual(['probe', 'probe']);
    } finally {
      gateway.close();
    }
  });

  it('names what is missing, each with a way to mend it', async () => {
    offer('llamacpp');
    config.modelRoots = [join(directory, 'none')];
    config.joinTokenFile = join(directory, 'token');
    config.mgmtInterface = 'nothing0';
    const problems = (await examine(config, deps())).filter(({ level }) => level === 'problem');
    expect(problems.map(({ subject }) => subject)).toEqual([
      'node',
      'engine llamacpp',
      'model root',
      'credentials',
    ]);
    for (const finding of problems) expect(findingText(finding)).toMatch(/^problem  .*\n {9}→ .+/);
  });

  it('shows why an engine does not even tell its version', async () => {
    offer('vllm');
    tool.answer([{ when: '--version', stderr: 'ImportError: libcudart.so.12\n', code: 1 }]);
    expect(await found('engine vllm')).toMatchObject([
      { level: 'problem', message: expect.stringContaining('libcudart.so.12') as unknown },
    ]);
  });

  it('asks an interpreter for the engine, not for its own version', async () => {
    offer('vllm');
    const python = new FakeTool('python3.12');
    try {
      python.answer([
        { when: 'import vllm', stderr: "ModuleNotFoundError: No module named 'vllm'", code: 1 },
      ]);
      Object.assign(config.engines.vllm ?? {}, { binary: python.path, baseArgs: ['-m', 'vllm.entrypoints'] });
      expect(await found('engine vllm')).toMatchObject([
        { level: 'problem', message: expect.stringContaining('ModuleNotFoundError') as string },
      ]);
    } finally {
      python.remove();
    }
  });

  it('warns of ports that outgoing connections take, unless they are reserved', async () => {
    files.set('/proc/sys/net/ipv4/ip_local_port_range', '1024 65535');
    expect(await found('ports')).toMatchObject([
      { level: 'warning', mend: 'sysctl net.ipv4.ip_local_reserved_ports=20000-20999' },
    ]);
    const reserved = async (text: string): Promise<unknown> => {
      files.set('/proc/sys/net/ipv4/ip_local_reserved_ports', text);
      return (await found('ports'))[0]?.level;
    };
    expect(await reserved('20000-20999\n')).toBe('ok');
    expect(await reserved('8080,20500-21000,19000-20499,40000\n')).toBe('ok');
    expect(await reserved('20000-20400,20402-20999\n')).toBe('warning');
    expect(await reserved('\n')).toBe('warning');
  });

  it('looks at the ports that the server told the agent', async () => {
    files.set('/proc/sys/net/ipv4/ip_local_port_range', '32768 60999');
    const message = async (): Promise<string> => (await found('ports'))[0]?.message ?? '';
    expect(await message()).toContain("20000 to 20999 (the server's default, until this agent has met it)");
    new StateFile(config.stateDir).save({ ...EMPTY_STATE, portRange: [40_000, 40_099] });
    expect(await found('ports')).toMatchObject([
      { level: 'warning', mend: 'sysctl net.ipv4.ip_local_reserved_ports=40000-40099' },
    ]);
    expect(await message()).toContain('40000 to 40099, as the server says');
  });

  it('sees that weights cannot be fetched into the cache', async () => {
    offer('vllm');
    writeFileSync(join(directory, 'hf'), 'a file');
    expect(await found('weights cache')).toMatchObject([
      { level: 'warning', mend: expect.stringContaining('or set HF_HOME') as string },
    ]);
  });

  it('sees secrets that others may read', async () => {
    config.joinTokenFile = join(directory, 'token');
    writeFileSync(config.joinTokenFile, 't', { mode: 0o644 });
    files.set(config.joinTokenFile, 't');
    const mend = `chmod 600 ${config.joinTokenFile}`;
    expect(await found('credentials')).toMatchObject([{ level: 'warning', mend }]);
    chmodSync(config.joinTokenFile, 0o600);
    expect(await found('credentials')).toEqual([]);
  });

  it('looks into certificates: whether they fit, and how long they hold', async () => {
    const certFile = join(directory, 'own.crt');
    const keyFile = join(directory, 'own.key');
    config.tls = { certFile, keyFile };
    const of = async (certificate: { cert: string }, key: string, clock = systemClock) => {
      writeFileSync(certFile, certificate.cert);
      writeFileSync(keyFile, key, { mode: 0o600 });
      return (await found('certificates', { clock })).map(({ level }) => level);
    };
    expect(await of(TEST_TLS, TEST_TLS.key)).toEqual(['ok']);
    expect(await of(TEST_TLS, RENEWED_TLS.key)).toEqual(['problem']);
    expect(await of(EXPIRED_TLS, TEST_TLS.key)).toEqual(['problem']);
    const late = { ...systemClock, wallMs: () => Date.parse('2119-12-25T00:00:00Z') };
    expect(await of(TEST_TLS, TEST_TLS.key, late)).toEqual(['warning']);
  });

  it("names who holds ports of the engines, its own machine's engines excepted", async () => {
    const processes = systemProcessTable();
    const marked = new Map([['LLMGW_SHARD', 'r1-0@1']]);
    const findings = await found('ports', {
      listening: () => [19_999, 20_000, 20_001, 20_002, 21_000],
      listenerOf: (port) => ({ 20_000: process.pid, 20_002: 77 })[port],
      processes: Object.assign(Object.create(processes) as typeof processes, {
        environment: (pid: number) => (pid === 77 ? marked : new Map()),
      }),
    });
    expect(findings).toMatchObject([
      { level: 'ok' },
      {
        level: 'warning',
        message: `ports of engines are taken: 20000 (by ${processes.name(process.pid)}, pid ${process.pid}), 20001 (by another user)`,
      },
    ]);
  });

  it('warns of few files', async () => {
    files.set(
      '/proc/self/limits',
      'Max open files            1024                 4096                 files\n',
    );
    expect(await found('limits')).toMatchObject([
      { level: 'warning', message: 'engines may open 1024 files' },
    ]);
  });

  it('tells process 1 whether it can reap', async () => {
    expect(await found('processes', { pid: 1 })).toMatchObject([
      { level: 'ok' },
      { level: 'warning', message: expect.stringMatching(/cannot reap .*: no koffi/) },
    ]);
    expect(await found('processes', { pid: 1, waits: () => Promise.resolve() })).toMatchObject([
      { level: 'ok' },
      { level: 'ok' },
    ]);
  });

  it('looks at each GPU, and at what cannot be seen', async () => {
    const gpu = (uuid: string, signs: object) =>
      ({ uuid, type: 'H100', vendor: 'nvidia', linkedTo: [], signs }) as const;
    const driver: DoctorDeps['gpuDriver'] = {
      vendor: 'nvidia',
      probe: () =>
        Promise.resolve({
          gpus: [gpu('A', {}), gpu('B', { lost: 'GPU is lost' })],
          processes: [{ uuid: 'A', pid: process.pid, name: 'ollama', memoryBytes: 3 * 2 ** 30 }],
          notes: [],
        }),
    };
    const findings = await examine(config, deps({ gpuDriver: driver }));
    expect(findings.filter(({ subject }) => subject === 'gpu')).toMatchObject([
      { level: 'ok', message: 'A H100' },
      { level: 'problem', message: 'B lost: nvidia-smi: GPU is lost' },
      { level: 'warning', message: `A: 3.0 GiB held by pid ${process.pid} (ollama)` },
    ]);
    expect(await found('gpus', { gpuDriver: driver })).toMatchObject([
      { level: 'warning', message: expect.stringContaining('kernel log') as unknown },
    ]);
    const broken: DoctorDeps['gpuDriver'] = {
      vendor: 'nvidia',
      probe: () => Promise.reject(new Error('no driver')),
    };
    expect(await found('gpus', { gpuDriver: broken })).toMatchObject([
      { level: 'problem', message: 'no driver' },
    ]);
  });

  it('sees a state directory that it may not write to, and one that others may read', async () => {
    mkdirSync(config.stateDir, { mode: 0o755 });
    chmodSync(config.stateDir, 0o755);
    expect(await found('state directory')).toMatchObject([{ level: 'ok' }, { level: 'warning' }]);
    rmSync(config.stateDir, { recursive: true });
    // Looking must not make it: whoever looks may be root.
    expect(await found('state directory')).toMatchObject([
      { level: 'ok', message: expect.stringContaining(', to be made, ') as string },
    ]);
    expect(existsSync(config.stateDir)).toBe(false);
    writeFileSync(config.stateDir, 'a file');
    expect(await found('state directory')).toMatchObject([{ level: 'problem' }]);
  });
});

describe('the systemd unit', () => {
  const unit = readFileSync('packaging/llmgw-agent.service', 'utf8');

  it('leaves engines running, and takes nothing from under them when it stops', () => {
    expect(unit).toMatch(/^KillMode=process$/m);
    expect(unit).toMatch(/^OOMPolicy=continue$/m);
    for (const setting of ['PrivateTmp', 'RuntimeDirectory', 'PrivateDevices', 'ProtectClock'])
      expect(unit).not.toMatch(new RegExp(`^${setting}=`, 'm'));
  });

  /** What `systemd-analyze` prints, errors too; skips where it is not there or needs a running systemd. */
  function analyze(skip: (why: string) => never, ...args: readonly string[]): string {
    const { error, status, stdout, stderr } = spawnSync('systemd-analyze', args, { encoding: 'utf8' });
    if (error !== undefined) return skip('no systemd-analyze on this machine');
    return status === 0 ? stdout + stderr : `exit code ${status}: ${stderr}`;
  }

  it('is hardened as far as systemd can tell', ({ skip }) => {
    const text = analyze(skip, 'security', '--offline=true', 'packaging/llmgw-agent.service');
    const exposure = Number(/exposure level[^:]*: ([\d.]+)/.exec(text)?.[1]);
    expect(exposure).toBeLessThan(3.2);
  });

  it.for(['llmgw-agent.service', 'llmgw-server.service', 'llmgw-server.socket'])(
    'has nothing in it that systemd does not know: %s',
    (name, { skip }) => {
      const root = mkdtempSync(join(tmpdir(), 'llmgw-units-'));
      try {
        const units = join(root, 'etc/systemd/system');
        mkdirSync(units, { recursive: true });
        for (const file of readdirSync('packaging').filter((one) => /\.(?:service|socket)$/.test(one)))
          copyFileSync(join('packaging', file), join(units, file));
        for (const target of ['basic', 'sysinit', 'shutdown', 'network-online', 'sockets', 'multi-user'])
          // An empty file would mask it.
          writeFileSync(join(units, `${target}.target`), '[Unit]\n');
        for (const directory of ['bin', 'usr/bin']) mkdirSync(join(root, directory), { recursive: true });
        for (const program of ['usr/bin/llmgw', 'bin/kill'])
          writeFileSync(join(root, program), '#!/bin/sh\n', { mode: 0o755 });
        expect(analyze(skip, 'verify', `--root=${root}`, name)).toBe('');
      } finally {
        rmSync(root, { recursive: true, force: true });
      }
    },
  );
});
