import { execFileSync } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { FakeGateway } from '../../test/support/agent/fake-gateway.js';
import { FakeTool } from '../../test/support/agent/fake-tool.js';
import { AgentConfig, AgentEngineConfig } from '../config/agent-config.js';
import { systemClock } from '../shared/clock.js';
import { examine, findingText, type DoctorDeps, type Finding } from './doctor.js';
import { systemProcessTable } from './process-table.js';

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
    const server = createServer();
    await new Promise<void>((resolve) => {
      server.listen(0, '127.0.0.1', resolve);
    });
    const address = server.address();
    config.server = `127.0.0.1:${typeof address === 'object' ? address?.port : 0}`;
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
      message: `${config.server} accepts connections`,
    });
    server.close();
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
      expect(gateway.messages).toEqual([]);
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

  it('warns of ports that outgoing connections take', async () => {
    files.set('/proc/sys/net/ipv4/ip_local_port_range', '1024 65535');
    expect(await found('ports')).toMatchObject([
      { level: 'warning', mend: 'sysctl net.ipv4.ip_local_reserved_ports=20000-20999' },
    ]);
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

  it('warns of few files and of being process 1', async () => {
    files.set(
      '/proc/self/limits',
      'Max open files            1024                 4096                 files\n',
    );
    expect(await found('limits')).toMatchObject([
      { level: 'warning', message: 'engines may open 1024 files' },
    ]);
    expect(await found('processes', { pid: 1 })).toMatchObject([{ level: 'ok' }, { level: 'warning' }]);
  });

  it('looks at each GPU, and at what cannot be seen', async () => {
    const gpu = (uuid: string, signs: object) =>
      ({ uuid, type: 'H100', vendor: 'nvidia', linkedTo: [], signs }) as const;
    const driver: DoctorDeps['gpuDriver'] = {
      vendor: 'nvidia',
      probe: () =>
        Promise.resolve({
          gpus: [gpu('A', {}), gpu('B', { lost: 'GPU is lost' })],
          processes: [],
          notes: [],
        }),
    };
    const findings = await examine(config, deps({ gpuDriver: driver }));
    expect(findings.filter(({ subject }) => subject === 'gpu')).toMatchObject([
      { level: 'ok', message: 'A H100' },
      { level: 'problem', message: 'B lost: nvidia-smi: GPU is lost' },
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

  it('is hardened as far as systemd can tell', (context) => {
    let text: string;
    try {
      text = execFileSync(
        'systemd-analyze',
        ['security', '--offline=true', 'packaging/llmgw-agent.service'],
        {
          encoding: 'utf8',
          stdio: ['ignore', 'pipe', 'ignore'],
        },
      );
    } catch {
      return context.skip('no systemd-analyze that works without systemd');
    }
    const exposure = Number(/exposure level[^:]*: ([\d.]+)/.exec(text)?.[1]);
    expect(exposure).toBeLessThan(4);
  });
});
