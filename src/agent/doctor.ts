/**
 * Looks over a machine before its agent runs there: what is missing, and how to mend it. Everything found here would
 * otherwise show up later, as an engine that does not start at three in the morning.
 */
import { randomUUID } from 'node:crypto';
import {
  accessSync,
  constants,
  existsSync,
  readFileSync,
  realpathSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import type { Hello, Refusal, Welcome } from '../agent-protocol/messages.js';
import type { AgentConfig } from '../config/agent-config.js';
import type { EngineKind } from '../domain/model-spec.js';
import type { Clock } from '../shared/clock.js';
import { errorChain } from '../shared/errors.js';
import { readTls, tlsEndsWallMs, tlsProblem, type TlsMaterial } from '../shared/tls-files.js';
import { systemChildWaits } from './child-waits.js';
import { skewText } from './clock-skew.js';
import { checkPorts, type PortDeps } from './doctor-ports.js';
import { askServer, type ServerAnswer } from './ask-server.js';
import { findExecutable } from './executables.js';
import { ok, problem, warning, type Finding } from './finding.js';
import { EngineCatalog } from './engines/catalog.js';
import { hubCacheDir } from './engines/model-source.js';
import type { GpuDriver, GpuProbe } from './gpu/driver.js';
import { findGpuDriver } from './gpu/find-driver.js';
import { assess } from './gpu/health-policy.js';
import { Tool } from './gpu/tool.js';
import { helloOf, stateDirectory } from './hello.js';
import { DISK_FREE_DOWNLOAD_MIN_BYTES, DISK_FREE_MIN_BYTES } from './limits.js';
import { identifyNode } from './node-facts.js';
import { listenerOf, listeningPorts, listens } from './ports-in-use.js';
import { MARKER_SHARD } from './marker.js';
import { systemProcessTable } from './process-table.js';
import { freeBytes } from './start-checks.js';
import { peekState } from './state-file.js';
import { StateLock } from './state-lock.js';

export interface DoctorDeps extends PortDeps {
  readonly clock: Clock;
  readonly env: NodeJS.ProcessEnv;
  readonly gpuDriver: GpuDriver | undefined;
  readonly pid: number;
  /** As the agent loads them when it has to reap. */
  readonly waits: () => Promise<unknown>;
}

export function systemDoctorDeps(config: AgentConfig, clock: Clock): DoctorDeps {
  return {
    clock,
    env: process.env,
    processes: systemProcessTable(),
    gpuDriver: findGpuDriver(config.gpus, process.env),
    readFile: readText,
    pid: process.pid,
    waits: systemChildWaits,
    listening: () => listeningPorts(),
    listenerOf,
  };
}

/** All findings, the good ones too: what was not looked at must not pass for fine. */
export async function examine(config: AgentConfig, deps: DoctorDeps): Promise<Finding[]> {
  return [
    ...checkNode(config),
    ...(await checkStateDir(config, deps)),
    ...(await checkProcesses(deps)),
    ...(await checkEngines(config, deps)),
    ...(await checkModels(config, deps)),
    ...(await checkGpus(deps)),
    ...checkPorts(peekState(resolve(config.stateDir))?.portRange, deps),
    ...(await checkLimits(config, deps)),
    ...checkTime(deps),
    ...(await checkServer(config, deps)),
  ];
}

function checkNode(config: AgentConfig): Finding[] {
  try {
    const { nodeId, address, bindHost } = identifyNode(config);
    const where = address === bindHost ? address : `${address}, listening on ${bindHost}`;
    const node = ok('node', `${nodeId}, engines are reached at ${where}`);
    if (!address.startsWith('127.')) return [node];
    return [
      node,
      warning(
        'address',
        'engines listen on loopback only',
        config.address === undefined
          ? 'set mgmtInterface or address, unless the server runs here'
          : `address ${address} only works when the server runs on this machine`,
      ),
    ];
  } catch (error) {
    return [problem('node', textOf(error), 'set mgmtInterface to an interface of this machine')];
  }
}

async function checkStateDir(config: AgentConfig, deps: DoctorDeps): Promise<Finding[]> {
  const directory = resolve(config.stateDir);
  const there = existsSync(directory);
  const writable = there ? directory : nearestExisting(directory);
  try {
    // Whoever looks may be root, and the agent not: a directory made here would lock it out.
    if (there) proveWritable(directory);
    else accessSync(writable, constants.W_OK | constants.X_OK);
  } catch (error) {
    return [problem('state directory', textOf(error), `make ${writable} writable for this user`)];
  }
  const findings = there ? lockedBy(directory, deps) : [];
  const free = (await freeBytes(writable)) ?? 0;
  findings.push(
    free >= DISK_FREE_MIN_BYTES
      ? ok('state directory', `${directory}${there ? '' : ', to be made'}, ${gib(free)} free`)
      : problem(
          'state directory',
          `only ${gib(free)} free in ${writable}`,
          'free some space, or move stateDir',
        ),
  );
  if (there && (statSync(directory).mode & 0o077) !== 0) {
    const mend = `chmod 700 ${directory}`;
    findings.push(warning('state directory', 'others on this machine may read engine logs', mend));
  }
  return findings;
}

function nearestExisting(path: string): string {
  return existsSync(path) ? path : nearestExisting(dirname(path));
}

/** Rights alone do not tell: a disk may be full, or mounted read-only. */
function proveWritable(directory: string): void {
  const probe = join(directory, '.write-test');
  writeFileSync(probe, 'x', { flush: true });
  rmSync(probe);
}

function lockedBy(directory: string, deps: DoctorDeps): Finding[] {
  try {
    StateLock.look(directory, deps.processes);
    return [];
  } catch (error) {
    return [warning('state directory', textOf(error), 'nothing to do if that is the agent of this machine')];
  }
}

async function checkProcesses(deps: DoctorDeps): Promise<Finding[]> {
  const findings: Finding[] = deps.processes.canIdentify
    ? [ok('processes', 'engines of an earlier agent can be taken over')]
    : [
        warning(
          'processes',
          'this system has no /proc: engines of an earlier agent are not taken over',
          'stop engines before the agent is restarted',
        ),
      ];
  if (deps.pid === 1) findings.push(await checkReaping(deps));
  return findings;
}

async function checkReaping(deps: DoctorDeps): Promise<Finding> {
  try {
    await deps.waits();
    return ok('processes', 'the agent is process 1 and reaps what engines leave behind');
  } catch (error) {
    const what = `the agent is process 1 and cannot reap what engines leave behind: ${textOf(error)}`;
    return warning('processes', what, 'run the container with an init (docker run --init, or tini)');
  }
}

/** Starting `vllm` to ask for its version imports half of Python. */
const VERSION_TIMEOUT_MS = 60_000;

async function checkEngines(config: AgentConfig, deps: DoctorDeps): Promise<Finding[]> {
  const catalog = new EngineCatalog(config, deps.env);
  const findings: Finding[] = [];
  for (const { kind, unavailable } of await catalog.offers()) {
    const subject = `engine ${kind}`;
    if (unavailable !== undefined) {
      findings.push(problem(subject, unavailable, `install it, or set engines.${kind}.binary`));
    } else if (kind === 'sim' || kind === 'embedded' || kind === 'command') {
      findings.push(ok(subject, 'offered'));
    } else {
      findings.push(await checkVersion(kind, catalog.program(kind), deps));
    }
  }
  if (findings.length === 0)
    findings.push(
      problem('engines', 'this machine offers none', "list them under engines in the agent's file"),
    );
  return findings;
}

/** An interpreter tells its own version, whatever it can import; the engine's is what counts. */
function versionArgs(name: string, baseArgs: readonly string[], kind: EngineKind): readonly string[] {
  return /^python[\d.]*$/.test(basename(name))
    ? ['-c', `import ${kind}; print(${kind}.__version__)`]
    : [...baseArgs, '--version'];
}

async function checkVersion(
  kind: 'vllm' | 'sglang' | 'llamacpp',
  program: readonly string[],
  deps: DoctorDeps,
): Promise<Finding> {
  const subject = `engine ${kind}`;
  const [name = '', ...baseArgs] = program;
  const args = versionArgs(name, baseArgs, kind);
  const file = (await findExecutable(name, deps.env['PATH'])) ?? name;
  const deadline = new AbortController();
  const timer = deps.clock.setTimer(VERSION_TIMEOUT_MS, () => deadline.abort());
  try {
    const output = await new Tool(file, deps.env).run(args, deadline.signal);
    const line = `${output.stdout}\n${output.stderr}`.trim().split('\n').at(-1) ?? '';
    if (output.code === 0) return ok(subject, `${file}, ${line.slice(0, 80)}`);
    return problem(
      subject,
      `${[file, ...args].join(' ')} failed: ${line.slice(0, 200)}`,
      'mend its installation',
    );
  } catch (error) {
    return problem(subject, textOf(error), 'mend its installation');
  } finally {
    timer.cancel();
  }
}

async function checkModels(config: AgentConfig, deps: DoctorDeps): Promise<Finding[]> {
  const roots = config.modelRoots.map((root) => {
    try {
      accessSync(root, constants.R_OK | constants.X_OK);
      return ok('model root', root);
    } catch (error) {
      return problem('model root', textOf(error), `create ${root}, or take it out of modelRoots`);
    }
  });
  return [...roots, ...(await checkCache(config, deps))];
}

/** Where engines put what they fetch. One that offers none that fetches has nothing to lose there. */
async function checkCache(config: AgentConfig, deps: DoctorDeps): Promise<Finding[]> {
  const fetching = (['vllm', 'sglang', 'llamacpp'] as const).some(
    (kind) => config.engines[kind] !== undefined,
  );
  const cache = hubCacheDir(deps.env);
  if (!fetching && !existsSync(cache)) return [];
  const place = nearestExisting(cache);
  try {
    accessSync(place, constants.W_OK | constants.X_OK);
  } catch (error) {
    const mend = `make ${place} writable for this user, or set HF_HOME; models under modelRoots need no cache`;
    return [warning('weights cache', textOf(error), mend)];
  }
  const free = (await freeBytes(place)) ?? 0;
  return [
    free >= DISK_FREE_DOWNLOAD_MIN_BYTES
      ? ok('weights cache', `${cache}, ${gib(free)} free`)
      : warning('weights cache', `only ${gib(free)} free in ${cache}`, 'free some space, or set HF_HOME'),
  ];
}

const PROBE_TIMEOUT_MS = 60_000;

async function checkGpus(deps: DoctorDeps): Promise<Finding[]> {
  const { gpuDriver, clock } = deps;
  if (gpuDriver === undefined) return [ok('gpus', 'none; engines run on the CPU')];
  const deadline = new AbortController();
  const timer = clock.setTimer(PROBE_TIMEOUT_MS, () => deadline.abort());
  try {
    const probe = await gpuDriver.probe(deadline.signal);
    const memory = assess(new Map(), probe, { monotonicMs: clock.monotonicMs(), wallMs: clock.wallMs() });
    const devices = [...memory.values()].map(({ last, health }) =>
      health.state === 'healthy'
        ? ok('gpu', `${last.uuid} ${last.type}`)
        : problem(
            'gpu',
            `${last.uuid} ${health.reason}: ${health.evidence}`,
            `cleared by ${health.clearedBy}`,
          ),
    );
    const notes = probe.notes.map((note) =>
      warning('gpus', note, 'nothing to do, unless a device is missing above'),
    );
    if (gpuDriver.vendor === 'nvidia' && probe.xids === undefined) {
      const mend = 'give the agent CAP_SYSLOG, or set kernel.dmesg_restrict=0';
      notes.push(warning('gpus', 'the kernel log cannot be read, so GPU errors (Xids) are not seen', mend));
    }
    return [...devices, ...checkHolders(probe, deps), ...notes];
  } catch (error) {
    const mend = 'check that the vendor tool answers by hand; or set gpus.driver: none';
    return [problem('gpus', errorChain(error).join(': '), mend)];
  } finally {
    timer.cancel();
  }
}

/** Memory of devices in other hands: no start of ours finds room there, and by night nobody remembers whose it is. */
function checkHolders({ gpus, processes }: GpuProbe, deps: DoctorDeps): Finding[] {
  const mend = 'end it, or let models that declare gpuMemory share the device';
  return processes
    .filter(({ uuid }) => gpus.some((gpu) => gpu.uuid === uuid))
    .filter(({ pid }) => deps.processes.environment(pid)?.has(MARKER_SHARD) !== true)
    .map(({ uuid, pid, name, memoryBytes }) => {
      const what = memoryBytes === undefined ? 'memory' : gib(memoryBytes);
      return warning('gpu', `${uuid}: ${what} held by pid ${pid} (${name ?? '?'})`, mend);
    });
}

const FILES_MIN = 8_192;
const SHARED_MEMORY_MIN_BYTES = 2 ** 30;

async function checkLimits(config: AgentConfig, deps: DoctorDeps): Promise<Finding[]> {
  const findings: Finding[] = [];
  const files = Number(/^Max open files\s+(\d+)/m.exec(deps.readFile('/proc/self/limits') ?? '')?.[1]);
  if (Number.isFinite(files) && files < FILES_MIN)
    findings.push(
      warning('limits', `engines may open ${files} files`, 'raise it: LimitNOFILE, or ulimit -n'),
    );
  const shared = await freeBytes('/dev/shm');
  const gangs = config.engines.vllm !== undefined || config.engines.sglang !== undefined;
  if (gangs && shared !== undefined && shared < SHARED_MEMORY_MIN_BYTES) {
    const mend = 'docker run --shm-size, or --ipc=host';
    findings.push(warning('limits', `/dev/shm has ${gib(shared)}; several GPUs need more`, mend));
  }
  return findings.length > 0 ? findings : [ok('limits', 'open files and shared memory suffice')];
}

function checkTime(deps: DoctorDeps): Finding[] {
  // Only timesyncd leaves a sign that can be read without asking a daemon.
  if (!existsSync('/run/systemd/timesync')) return [];
  return deps.readFile('/run/systemd/timesync/synchronized') !== undefined
    ? [ok('clock', 'synchronised')]
    : [warning('clock', 'not synchronised; times in logs will not agree', 'timedatectl set-ntp true')];
}

const CONNECT_TIMEOUT_MS = 3_000;

/** Files the agent proves itself with: there, and nobody else's to read. */
function checkCredentials(config: AgentConfig, deps: DoctorDeps): Finding[] {
  const secret = [config.joinTokenFile, config.tls?.keyFile];
  return [...secret, config.tls?.caFile, config.tls?.certFile].flatMap((path): Finding[] => {
    if (path === undefined) return [];
    const text = deps.readFile(path);
    if (text === undefined || text.trim() === '')
      return [problem('credentials', `${path} is missing or empty`, 'put it there; it is read at each dial')];
    if (!secret.includes(path) || (modeOf(path) & 0o077) === 0) return [];
    return [warning('credentials', `others on this machine may use ${path}`, `chmod 600 ${path}`)];
  });
}

/** A certificate with less than this left, ms, should have been renewed by now. */
const RENEWAL_DUE_MS = 14 * 86_400_000;

/** Whether what the files hold makes a connection, now and for a while. */
function checkCertificates({ tls }: AgentConfig, deps: DoctorDeps): Finding[] {
  if (tls === undefined) return [];
  let material: TlsMaterial;
  try {
    material = readTls(tls);
  } catch {
    // Told where the files are looked at one by one.
    return [];
  }
  const nowWallMs = deps.clock.wallMs();
  const found = tlsProblem(tls, material, nowWallMs);
  const mend = 'put a new one in its place; it is taken at the next dial';
  if (found !== undefined) return [problem('certificates', found.message, mend)];
  const endsWallMs = tlsEndsWallMs(material);
  if (endsWallMs === undefined) return [];
  const end = `${tls.certFile} ends at ${new Date(endsWallMs).toISOString()}`;
  return endsWallMs - nowWallMs < RENEWAL_DUE_MS
    ? [warning('certificates', end, mend)]
    : [ok('certificates', end)];
}

function modeOf(path: string): number {
  return existsSync(path) ? statSync(path).mode : 0;
}

async function checkServer(config: AgentConfig, deps: DoctorDeps): Promise<Finding[]> {
  const findings = [...checkCredentials(config, deps), ...checkCertificates(config, deps)];
  const at = config.server.lastIndexOf(':');
  const address = {
    host: config.server.slice(0, at).replace(/^\[|\]$/g, ''),
    port: Number(config.server.slice(at + 1)),
  };
  if (!(await listens(address, deps.clock, CONNECT_TIMEOUT_MS))) {
    const mend = 'start the server, or check agentListen and the firewall; engines would serve on meanwhile';
    return [...findings, warning('server', `${config.server} cannot be reached`, mend)];
  }
  return [...findings, ...(await checkAnswer(config, deps))];
}

async function checkAnswer(config: AgentConfig, deps: DoctorDeps): Promise<Finding[]> {
  const { server } = config;
  let answer: ServerAnswer;
  try {
    answer = await askServer(config, helloToCheck(config, deps), deps.clock, CONNECT_TIMEOUT_MS);
  } catch (error) {
    return [problem('server', `${server} could not be asked: ${textOf(error)}`, 'mend what is named above')];
  }
  switch (answer.kind) {
    case 'welcome':
      return [ok('server', `${server} would take this agent`), ...checkWelcome(answer.welcome, deps)];
    case 'refusal':
      return [refusedFinding(server, answer.refusal)];
    case 'older':
      return [
        warning('server', `${server} is an older llmgw, which cannot be asked more`, 'upgrade it first'),
      ];
    case 'stranger': {
      const what = `${server} answers, but is not llmgw's agent listener (agentListen, default 8082): ${answer.reason}`;
      return [
        problem('server', what, 'set server to that address, and see that both ends speak TLS or neither'),
      ];
    }
  }
}

function refusedFinding(server: string, { code, message }: Refusal): Finding {
  if (code === 'nodeIdTaken') return problem('node', message, 'until then the server turns this one away');
  return problem('server', `${server} would turn this agent away: ${message}`, 'mend that first');
}

function checkWelcome({ wallMs, holder }: Welcome, deps: DoctorDeps): Finding[] {
  const held = holder === undefined ? [] : [ok('node', `its agent is connected (${holder})`)];
  if (wallMs === undefined) return held;
  const skew = skewText(deps.clock.wallMs() - wallMs);
  const clock =
    skew === undefined
      ? ok('clock', "agrees with the server's")
      : warning(
          'clock',
          `${skew}; times in logs and events will not agree`,
          'timedatectl set-ntp true, on both',
        );
  return [...held, clock];
}

function helloToCheck(config: AgentConfig, { processes, clock }: DoctorDeps): Omit<Hello, 'joinToken'> {
  const path = resolve(config.stateDir);
  return helloOf({
    config,
    processes,
    node: identifyNode(config),
    stateDir: existsSync(path) ? stateDirectory(realpathSync(path)) : undefined,
    build: 'check',
    instanceId: randomUUID(),
    highestTerm: 0,
    wallMs: clock.wallMs(),
  });
}

const gib = (bytes: number): string => `${(bytes / 2 ** 30).toFixed(1)} GiB`;

function textOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

function readText(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return undefined;
  }
}
