/** What is overloaded: the built server before simulated engines of a known capacity, each a process of its own. */
import { spawn, type ChildProcess } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

const DIST = join(process.cwd(), 'dist');
const PATIENCE_MS = 30_000;

export interface FleetPlan {
  readonly engines: number;
  /** Requests an engine runs at once; the server is told the same as `maxConcurrency`. */
  readonly slots: number;
  readonly ttftMs: number;
  readonly tpotMs: number;
  readonly queueMax: number;
}

/** What `GET /sim/stats` says, as far as it matters here. */
export interface EngineStats {
  readonly maxRunning: number;
  readonly running: number;
  readonly requests: number;
  readonly completed: number;
  readonly rejected: number;
}

/** Seconds a process's main thread has run, and has been ready to run while others had the processor. */
export function secondsOf(pid: number | undefined): { readonly ran: number; readonly waited: number } {
  const text = readFileSync(`/proc/${pid}/schedstat`, 'utf8');
  const [ran = 0, waited = 0] = text.split(' ').map((ns) => Number(ns) / 1e9);
  return { ran, waited };
}

export class Fleet {
  private readonly children: ChildProcess[] = [];
  private readonly dir = mkdtempSync(join(tmpdir(), 'llmgw-overload-'));
  private engines: string[] = [];
  client = '';
  admin = '';

  constructor(readonly plan: FleetPlan) {}

  async start(): Promise<void> {
    if (!existsSync(join(DIST, 'main.js')))
      throw new Error('dist/main.js is missing: run `npm run build` first');
    this.engines = await Promise.all(Array.from({ length: this.plan.engines }, () => this.startEngine()));
    const config = join(this.dir, 'server.yaml');
    writeFileSync(config, this.config());
    const text = await this.startProcess(
      [join(DIST, 'main.js'), 'server', '--config', config],
      /"msg":"server is up"/,
    );
    this.client = `http://${/"client":"([^"]+)"/.exec(text)?.[1]}`;
    this.admin = `http://${/"admin":"([^"]+)"/.exec(text)?.[1]}`;
  }

  /** Seconds the server's main thread has run, and has been ready to run while others had the processor. */
  serverSeconds(): { readonly ran: number; readonly waited: number } {
    return secondsOf(this.serverPid);
  }

  /** The process whose share of the processors `serverSeconds` tells. */
  get serverPid(): number | undefined {
    return this.children.at(-1)?.pid;
  }

  /** Every engine's own count. */
  stats(): Promise<EngineStats[]> {
    return Promise.all(
      this.engines.map(async (url) => (await (await fetch(`${url}/sim/stats`)).json()) as EngineStats),
    );
  }

  async reset(): Promise<void> {
    await Promise.all(this.engines.map((url) => fetch(`${url}/sim/reset`, { method: 'POST' })));
  }

  async stop(): Promise<void> {
    for (const child of this.children) child.kill('SIGTERM');
    await Promise.all(
      this.children
        .filter((child) => child.exitCode === null)
        .map((child) => new Promise((resolve) => child.once('exit', resolve))),
    );
    rmSync(this.dir, { recursive: true, force: true });
  }

  private config(): string {
    const endpoints = this.engines.map(
      (url, i) => `  - { id: e${i + 1}, url: "${url}", models: [m], maxConcurrency: ${this.plan.slots} }`,
    );
    return `listen: 127.0.0.1:0
adminListen: 127.0.0.1:0
agentListen: 127.0.0.1:0
stateDir: ${join(this.dir, 'state')}
endpoints:
${endpoints.join('\n')}
router:
  profiles:
    interactive: { queue: { max: ${this.plan.queueMax} } }
`;
  }

  private async startEngine(): Promise<string> {
    const { slots, ttftMs, tpotMs } = this.plan;
    const text = await this.startProcess(
      [
        join(DIST, 'engines', 'sim', 'main.js'),
        ...['--model', 'm', '--port', '0', '--slots', String(slots)],
        ...['--ttft-ms', String(ttftMs), '--tpot-ms', String(tpotMs)],
      ],
      /on (http:\S+)/,
    );
    return /on (http:\S+)/.exec(text)?.[1] ?? '';
  }

  /** Starts a program and waits until what it prints has `ready` in it; returns that line. */
  private async startProcess(args: readonly string[], ready: RegExp): Promise<string> {
    const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'pipe'], cwd: this.dir });
    this.children.push(child);
    let text = '';
    let found: string | undefined;
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding('utf8').on('data', (chunk: string) => {
        if (found !== undefined) return;
        text += chunk;
        found = text
          .split('\n')
          .slice(0, -1)
          .find((line) => ready.test(line));
      });
    }
    for (const end = performance.now() + PATIENCE_MS; found === undefined; await sleep(20)) {
      if (performance.now() > end || child.exitCode !== null) throw new Error(`did not start: ${text}`);
    }
    return found;
  }
}
