/**
 * Looks over a machine before its agent runs there: what is missing, and how to mend it. Everything found here would
 * otherwise show up later, as an engine that does not start at three in the morning.
 */
import { accessSync, constants, existsSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import type { AgentConfig } from '../config/agent-config.js';
import type { Clock } from '../shared/clock.js';
import { errorChain } from '../shared/errors.js';
import { skewText } from './clock-skew.js';
import { findExecutable } from './executables.js';
import { EngineCatalog } from './engines/catalog.js';
import { hubCacheDir } from './engines/model-source.js';
import type { GpuDriver } from './gpu/driver.js';
import { findGpuDriver } from './gpu/find-driver.js';
import { assess } from './gpu/health-policy.js';
import { Tool } from './gpu/tool.js';
import { DISK_FREE_DOWNLOAD_MIN_BYTES, DISK_FREE_MIN_BYTES } from './limits.js';
import { identifyNode } from './node-facts.js';
import { MARKER_SHARD } from './marker.js';
import { listenerOf, listeningPorts, listens } from './ports-in-use.js';
import { systemProcessTable, type ProcessTable } from './process-table.js';
import { freeBytes } from './start-checks.js';
import { serverTime } from './server-time.js';
import { StateLock } from './state-lock.js';

export interface Finding {
  /** What was looked at, e.g. `engine vllm`. */
  readonly subject: string;
  readonly level: 'ok' | 'warning' | 'problem';
  readonly message: string;
  /** How to mend it. */
  readonly mend?: string;
}

export interface DoctorDeps {
  readonly clock: Clock;
  readonly env: NodeJS.ProcessEnv;
  readonly processes: ProcessTable;
  readonly gpuDriver: GpuDriver | undefined;
  /** Reads a file of the system; undefined when there is none. */
  readonly readFile: (path: string) => string | undefined;
  readonly pid: number;
  /** Ports somebody listens on. */
  readonly listening: () => readonly number[];
  /** Who listens there; undefined when it is nobody this user may look at. */
  readonly listenerOf: (port: number) => number | undefined;
}

export function systemDoctorDeps(config: AgentConfig, clock: Clock): DoctorDeps {
  return {
    clock,
    env: process.env,
    processes: systemProcessTable(),
    gpuDriver: findGpuDriver(config.gpus, process.env),
    readFile: readText,
    pid: process.pid,
    listening: () => listeningPorts(),
    listenerOf,
  };
}

/** One line for a person: `problem  engine vllm: … → …`. */
export function findingText({ level, subject, message, mend }: Finding): string {
  const line = `${level.padEnd(7)}  ${subject}: ${message}`;
  return mend === undefined ? line : `${line}\n         → ${mend}`;
}

/** All findings, the good ones too: what was not looked at must not pass for fine. */
export async function examine(config: AgentConfig, deps: DoctorDeps): Promise<Finding[]> {
  return [
    ...checkNode(config),
    ...(await checkStateDir(config, deps)),
    ...checkProcesses(deps),
    ...(await checkEngines(config, deps)),
    ...(await checkModels(config, deps)),
    ...(await checkGpus(deps)),
    ...checkPorts(deps),
    ...(await checkLimits(config, deps)),
    ...checkTime(deps),
    ...(await checkServer(config, deps)),
  ];
}

const ok = (subject: string, message: string): Finding => ({ subject, level: 'ok', message });
const warning = (subject: string, message: string, mend: string): Finding => ({
  subject,
  level: 'warning',
  message,
  mend,
});
const problem = (subject: string, message: string, mend: string): Finding => ({
  subject,
  level: 'problem',
  message,
  mend,
});

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
        'set mgmtInterface or address, unless the server runs here',
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
    StateLock.take(directory, deps.processes).release();
    return [];
  } catch (error) {
    return [warning('state directory', textOf(error), 'nothing to do if that is the agent of this machine')];
  }
}

function checkProcesses(deps: DoctorDeps): Finding[] {
  const findings: Finding[] = deps.processes.canIdentify
    ? [ok('processes', 'engines of an earlier agent can be taken over')]
    : [
        warning(
          'processes',
          'this system has no /proc: engines of an earlier agent are not taken over',
          'stop engines before the agent is restarted',
        ),
      ];
  if (deps.pid === 1) {
    const mend = 'run the container with an init (docker run --init, or tini)';
    findings.push(
      warning('processes', 'the agent is process 1 and does not reap what engines leave behind', mend),
    );
  }
  return findings;
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
      findings.push(await checkVersion(subject, catalog.program(kind), deps));
    }
  }
  if (findings.length === 0)
    findings.push(
      problem('engines', 'this machine offers none', "list them under engines in the agent's file"),
    );
  return findings;
}

async function checkVersion(subject: string, program: readonly string[], deps: DoctorDeps): Promise<Finding> {
  const [name = '', ...args] = program;
  const file = (await findExecutable(name, deps.env['PATH'])) ?? name;
  const deadline = new AbortController();
  const timer = deps.clock.setTimer(VERSION_TIMEOUT_MS, () => deadline.abort());
  try {
    const output = await new Tool(file, deps.env).run([...args, '--version'], deadline.signal);
    const line = `${output.stdout}\n${output.stderr}`.trim().split('\n').at(-1) ?? '';
    if (output.code === 0) return ok(subject, `${file}, ${line.slice(0, 80)}`);
    return problem(subject, `${file} --version failed: ${line.slice(0, 200)}`, 'mend its installation');
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
  const cache = hubCacheDir(deps.env);
  const free = existsSync(cache) ? await freeBytes(cache) : undefined;
  if (free === undefined) return roots;
  const finding =
    free >= DISK_FREE_DOWNLOAD_MIN_BYTES
      ? ok('weights cache', `${cache}, ${gib(free)} free`)
      : warning('weights cache', `only ${gib(free)} free in ${cache}`, 'free some space, or set HF_HOME');
  return [...roots, finding];
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
    return [...devices, ...notes];
  } catch (error) {
    const mend = 'check that the vendor tool answers by hand; or set gpus.driver: none';
    return [problem('gpus', errorChain(error).join(': '), mend)];
  } finally {
    timer.cancel();
  }
}

/** The control plane's own default; its file may say otherwise. */
const DEFAULT_PORTS = [20_000, 20_999] as const;

function checkPorts(deps: DoctorDeps): Finding[] {
  const range = deps.readFile('/proc/sys/net/ipv4/ip_local_port_range')?.trim().split(/\s+/).map(Number);
  const [from = Number.POSITIVE_INFINITY, to = 0] = range ?? [];
  const [first, last] = DEFAULT_PORTS;
  const taken = checkTakenPorts(deps);
  if (from > last || to < first)
    return [ok('ports', `outgoing connections use ${from} to ${to}, engines ${first} to ${last}`), ...taken];
  return [
    warning(
      'ports',
      `outgoing connections use ${from} to ${to}, which takes ports of engines (${first} to ${last}) by chance`,
      `sysctl net.ipv4.ip_local_reserved_ports=${first}-${last}`,
    ),
    ...taken,
  ];
}

const HOLDERS_NAMED = 5;

/** Ports of the engines that somebody else listens on; engines of an agent carry its marker. */
function checkTakenPorts(deps: DoctorDeps): Finding[] {
  const { processes } = deps;
  const [first, last] = DEFAULT_PORTS;
  const strangers = deps
    .listening()
    .filter((port) => port >= first && port <= last)
    .map((port) => ({ port, pid: deps.listenerOf(port) }))
    .filter(({ pid }) => pid === undefined || processes.environment(pid)?.has(MARKER_SHARD) !== true);
  if (strangers.length === 0) return [];
  const named = strangers
    .slice(0, HOLDERS_NAMED)
    .map(({ port, pid }) =>
      pid === undefined
        ? `${port} (by another user)`
        : `${port} (by ${processes.name(pid) ?? '?'}, pid ${pid})`,
    );
  const more = strangers.length - named.length;
  const message = `ports of engines are taken: ${named.join(', ')}${more > 0 ? ` and ${more} more` : ''}`;
  return [
    warning('ports', message, "the others are used; or set control.portRange in the server's file elsewhere"),
  ];
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

async function checkServer(config: AgentConfig, deps: DoctorDeps): Promise<Finding[]> {
  const findings: Finding[] = [];
  for (const path of [config.joinTokenFile, config.tls?.caFile, config.tls?.certFile, config.tls?.keyFile]) {
    if (path === undefined) continue;
    const text = deps.readFile(path);
    if (text === undefined || text.trim() === '')
      findings.push(
        problem('credentials', `${path} is missing or empty`, 'put it there; it is read at each dial'),
      );
  }
  const at = config.server.lastIndexOf(':');
  const address = {
    host: config.server.slice(0, at).replace(/^\[|\]$/g, ''),
    port: Number(config.server.slice(at + 1)),
  };
  const reached = await listens(address, deps.clock, CONNECT_TIMEOUT_MS);
  if (reached) findings.push(...(await checkServerTime(config, deps)));
  const mend = 'start the server, or check agentListen and the firewall; engines would serve on meanwhile';
  findings.push(
    reached
      ? ok('server', `${config.server} accepts connections`)
      : warning('server', `${config.server} cannot be reached`, mend),
  );
  return findings;
}

async function checkServerTime(config: AgentConfig, deps: DoctorDeps): Promise<Finding[]> {
  const answer = await serverTime(config.server, config.tls, deps.clock, CONNECT_TIMEOUT_MS);
  if (answer.kind === 'unknown') {
    const mend =
      'see that server and tls name the agent listener of a llmgw server, and that it speaks TLS or not';
    return [warning('server', `${config.server} does not answer as expected: ${answer.reason}`, mend)];
  }
  const skew = skewText(deps.clock.wallMs() - answer.wallMs);
  if (skew === undefined) return [ok('clock', "agrees with the server's")];
  return [
    warning('clock', `${skew}; times in logs and events will not agree`, 'timedatectl set-ntp true, on both'),
  ];
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
