/** What a fleet of connected agents costs the server process, at rest and when it comes back all at once. */
import { fork, spawn, type ChildProcess } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { HEARTBEAT_INTERVAL_MS } from '../../src/agent-protocol/proto.js';
import type { StatusView } from '../../src/admin-api/views/status.js';
import type { AgentsTell } from './agents.js';
import type { Line } from './report.js';
import { TURN_PROBE, TURN_PROBE_FILE, type Turns } from './turn-probe.js';

const MAIN = join(process.cwd(), 'dist', 'main.js');
const TICKS_PER_SECOND = 100;

const CPU_BAR = 0.5;
const MEMORY_BAR_KIB = 100;
const RECONNECT_BAR_S = 30;
const STALL_BAR_MS = 200;

/** Time after the last agent has connected until a measurement begins: first reports, placing, garbage of both. */
const CALM_MS = 15_000;
const WINDOW_MS = 20_000;
const PROFILE_S = 15;
/** Longest wait for a fleet to connect. */
const PATIENCE_MS = 180_000;

const CONFIG = `
control: { settleAfterStart: 5s }
models:
  - name: m1
    replicas: 200
    profiles: [{ name: sim, engine: sim, gpus: 1 }]
`;

interface Server {
  readonly process: ChildProcess;
  readonly admin: string;
  readonly agent: string;
}

/** `profile` names a file for a CPU profile of the server while all come back. */
export async function measureStreams(
  count: number,
  entry: string,
  profile: string | undefined,
): Promise<readonly Line[]> {
  if (!existsSync(MAIN)) throw new Error('dist/main.js is missing: run `npm run build` first');
  const dir = mkdtempSync(join(tmpdir(), 'llmgw-scale-'));
  writeFileSync(join(dir, 'server.yaml'), CONFIG);
  let server = await startServer(dir, '127.0.0.1:0');
  const agents = fork(entry, ['--agents', server.agent, '--count', String(count)]);
  let connected = 0;
  let reports = 0;
  agents.on('message', (message: AgentsTell) => ({ connected, reports } = message));
  const all = async (): Promise<void> => {
    for (const end = performance.now() + PATIENCE_MS; connected < count; await sleep(20))
      if (performance.now() > end || agents.exitCode !== null)
        throw new Error(`${connected} of ${count} agents are connected`);
  };
  try {
    const emptyKiB = memoryKiB(server.process);
    await all();
    await sleep(CALM_MS);
    await resetDelay(server);
    const cpuBefore = cpuSeconds(server.process);
    const reportsBefore = reports;
    const startMs = performance.now();
    await sleep(WINDOW_MS);
    const perSecond = (reports - reportsBefore) / ((performance.now() - startMs) / 1_000);
    const share = (cpuSeconds(server.process) - cpuBefore) / ((performance.now() - startMs) / 1_000);
    const eachKiB = (memoryKiB(server.process) - emptyKiB) / count;
    const atRest = await stallMs(server);
    const status = await get<StatusView>(server, 'admin/v1/status');

    server.process.kill('SIGKILL');
    await new Promise((resolve) => server.process.once('exit', resolve));
    while (connected > 0) await sleep(10);
    server = await startServer(dir, server.agent);
    const upMs = performance.now();
    server.process.kill('SIGUSR2');
    const profiled =
      profile === undefined ? undefined : get<unknown>(server, `debug/pprof/profile?seconds=${PROFILE_S}`);
    await all();
    const backS = (performance.now() - upMs) / 1_000;
    if (profile !== undefined) writeFileSync(profile, JSON.stringify(await profiled));
    await sleep(2_000);
    const { longest, busiest } = JSON.parse(readFileSync(turnsFile(dir), 'utf8')) as Turns;
    return [
      {
        what: `${count} agents at rest, a report each every 5 s: CPU of one core`,
        measured: `${(share * 100).toFixed(0)} % (${perSecond.toFixed(0)} reports/s, longest stall ${atRest.toFixed(0)} ms, last pass ${status.plan?.durationMs.toFixed(0) ?? '?'} ms)`,
        bar: `${CPU_BAR * 100} %`,
        // A fleet that did not get to send its heartbeats proves nothing.
        met: share <= CPU_BAR && perSecond >= (0.95 * count * 1_000) / HEARTBEAT_INTERVAL_MS,
      },
      {
        what: 'memory for each',
        measured: `${eachKiB.toFixed(0)} KiB`,
        bar: `${MEMORY_BAR_KIB} KiB`,
        met: eachKiB <= MEMORY_BAR_KIB,
      },
      {
        what: 'all back after SIGKILL and a new start',
        measured: `${backS.toFixed(1)} s after it was up`,
        bar: `${RECONNECT_BAR_S} s`,
        met: backS <= RECONNECT_BAR_S,
      },
      {
        what: 'most work in one turn of the event loop meanwhile',
        // The wall time of a stall is ours only as far as the main thread ran in it.
        measured: `${busiest.cpuMs.toFixed(0)} ms CPU of the main thread (longest stall ${longest.wallMs.toFixed(0)} ms: ran ${longest.cpuMs.toFixed(0)} ms, waited for a processor ${longest.starvedMs.toFixed(0)} ms)`,
        bar: `${STALL_BAR_MS} ms`,
        met: busiest.cpuMs <= STALL_BAR_MS,
      },
    ];
  } finally {
    agents.kill('SIGKILL');
    server.process.kill('SIGKILL');
    rmSync(dir, { recursive: true, force: true });
  }
}

const turnsFile = (dir: string): string => join(dir, 'turns.json');

/** Starts a server and waits until it is up. */
async function startServer(dir: string, agentListen: string): Promise<Server> {
  const args = ['--config', join(dir, 'server.yaml'), '--state-dir', join(dir, 'state')];
  const listen = ['--listen', '127.0.0.1:0', '--admin-listen', '127.0.0.1:0', '--agent-listen', agentListen];
  const child = spawn(process.execPath, ['--import', TURN_PROBE, MAIN, 'server', ...args, ...listen], {
    stdio: ['ignore', 'ignore', 'pipe'],
    cwd: dir,
    env: { ...process.env, [TURN_PROBE_FILE]: turnsFile(dir) },
  });
  let log = '';
  return new Promise((resolve, reject) => {
    child.once('exit', (code) => reject(new Error(`the server ended with ${code}: ${log.slice(-2_000)}`)));
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      if (log.includes('"server is up"')) return;
      log += text;
      const line = log.split('\n').find((one) => one.includes('"server is up"') && one.endsWith('}'));
      if (line === undefined) return;
      const { admin, agent } = JSON.parse(line) as { admin: string; agent: string };
      resolve({ process: child, admin, agent });
    });
  });
}

async function get<T>({ admin }: Server, path: string): Promise<T> {
  return (await (await fetch(`http://${admin}/${path}`)).json()) as T;
}

/** A scrape starts a new interval of the delay's histogram. */
async function resetDelay({ admin }: Server): Promise<void> {
  await (await fetch(`http://${admin}/metrics`)).text();
}

async function stallMs(server: Server): Promise<number> {
  return (await get<{ max: number }>(server, 'debug/eventloop')).max * 1_000;
}

function cpuSeconds({ pid }: ChildProcess): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8')
    .replace(/^.*\) /, '')
    .split(' ');
  return (Number(fields[11]) + Number(fields[12])) / TICKS_PER_SECOND;
}

function memoryKiB({ pid }: ChildProcess): number {
  return Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]);
}
