import { spawn, type ChildProcess } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { GivenUp, waitFor } from './wait-for.js';

const ROOT = resolve(dirname(fileURLToPath(import.meta.url)), '..', '..');
const MAIN = join(ROOT, 'dist', 'main.js');

/** One line of a process's log. */
export type LogLine = Readonly<Record<string, unknown>> & { readonly msg?: string; readonly level?: string };

/** How a process ended. */
export interface Exit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

/** A real `llmgw` process, as a user starts it, with its log read as it comes. */
export class LlmgwProcess {
  readonly log: LogLine[] = [];
  stdout = '';
  stderr = '';
  private readonly child: ChildProcess;
  private exit: Exit | undefined;

  constructor(
    args: readonly string[],
    env: Readonly<Record<string, string>> = {},
    cwd: string = tmpdir(),
    /** A listening socket to hand over, as systemd does. */
    socketFd?: number,
    /** A command that runs the program given as its last arguments, e.g. in a namespace. */
    below: readonly string[] = [],
  ) {
    if (!existsSync(MAIN)) throw new Error('dist/main.js is missing: run `npm run build` first');
    const command = [...below, process.execPath, MAIN, ...args];
    // The pid that the socket is meant for is known only to the process itself.
    const [program = '', ...words] =
      socketFd === undefined
        ? command
        : ['/bin/sh', '-c', 'LISTEN_FDS=1 LISTEN_PID=$$ exec "$@"', 'sh', ...command];
    this.child = spawn(program, words, {
      cwd,
      // Colours and a developer's own settings must not leak into what is asserted.
      env: { PATH: process.env['PATH'], HOME: process.env['HOME'], NO_COLOR: '1', ...env },
      stdio: ['ignore', 'pipe', 'pipe', ...(socketFd === undefined ? [] : [socketFd])],
    });
    this.child.stdout?.setEncoding('utf8').on('data', (text: string) => (this.stdout += text));
    let partial = '';
    this.child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      this.stderr += text;
      const lines = (partial + text).split('\n');
      partial = lines.pop() ?? '';
      for (const line of lines) if (line.startsWith('{')) this.log.push(JSON.parse(line) as LogLine);
    });
    this.child.on('exit', (code, signal) => (this.exit = { code, signal }));
  }

  get pid(): number {
    if (this.child.pid === undefined) throw new Error('process did not start');
    return this.child.pid;
  }

  get exited(): Exit | undefined {
    return this.exit;
  }

  /** The first log line with this message; fails at once when the process ended without it. */
  async logged(msg: string, deadlineMs = 20_000): Promise<LogLine> {
    return waitFor(
      () => {
        const line = this.log.find((entry) => entry.msg === msg);
        if (line === undefined && this.exit !== undefined) return this.failure(`ended before "${msg}"`);
        return line;
      },
      { deadlineMs, what: `log line "${msg}"; stderr so far: ${this.stderr.slice(-2_000)}` },
    );
  }

  signal(signal: NodeJS.Signals): void {
    this.child.kill(signal);
  }

  async ended(deadlineMs = 20_000): Promise<Exit> {
    return waitFor(() => this.exit, { deadlineMs, what: `end of process ${this.pid}` });
  }

  /** Ends the process whatever state it is in. */
  async dispose(): Promise<void> {
    if (this.exit !== undefined) return;
    this.child.kill('SIGTERM');
    try {
      await this.ended(10_000);
    } catch {
      this.child.kill('SIGKILL');
      await this.ended(5_000);
    }
  }

  private failure(what: string): never {
    throw new GivenUp(`llmgw ${what}: ${JSON.stringify(this.exit)}\n${this.stderr.slice(-4_000)}`);
  }
}

/** A folder for one test's state and files, removed afterwards. */
export class Scratch {
  readonly dir = mkdtempSync(join(tmpdir(), 'llmgw-e2e-'));

  /** Writes a file and returns its path. */
  file(name: string, text: string): string {
    const path = join(this.dir, name);
    writeFileSync(path, text);
    return path;
  }

  path(name: string): string {
    return join(this.dir, name);
  }

  remove(): void {
    rmSync(this.dir, { recursive: true, force: true });
  }
}

/** A running server's addresses as base URLs. */
export interface ServerUrls {
  readonly client: string;
  readonly admin: string;
  /** `host:port` for agents. */
  readonly agent: string;
}

/** Starts `llmgw server` on free ports and waits until it is up. */
export async function startServerProcess(
  scratch: Scratch,
  args: readonly string[],
): Promise<{ readonly process: LlmgwProcess; readonly urls: ServerUrls }> {
  const server = new LlmgwProcess(
    [
      'server',
      ...['--listen', '127.0.0.1:0', '--admin-listen', '127.0.0.1:0', '--agent-listen', '127.0.0.1:0'],
      ...['--state-dir', scratch.path('server-state')],
      ...args,
    ],
    {},
    scratch.dir,
  );
  const up = await server.logged('server is up');
  return {
    process: server,
    urls: {
      client: `http://${String(up['client'])}`,
      admin: `http://${String(up['admin'])}`,
      agent: String(up['agent']),
    },
  };
}

/** `GET` of the admin API, parsed. */
export async function adminGet<T>(urls: ServerUrls, path: string): Promise<T> {
  const response = await fetch(`${urls.admin}/admin/v1/${path}`);
  if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
  return (await response.json()) as T;
}
