/**
 * Runs a vendor's tool in a child with a hard end. Drivers block for minutes inside the kernel, where not even KILL
 * reaches; so there is never more than one child, and while one is stuck nothing new is started. A child is a group of its
 * own: what hangs may be the program that a wrapper in its place has started.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { signalProcess, systemProcessTable, type ProcessTable } from '../process-table.js';

export interface ToolOutput {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** What a tool may print: eight GPUs in XML are about 200 KiB. */
const OUTPUT_MAX_BYTES = 8 * 1024 * 1024;

export class Tool {
  private last: ChildProcess | undefined;
  /** The group that was killed last, until nobody of it is left. */
  private killed: number | undefined;

  constructor(
    private readonly file: string,
    private readonly env: NodeJS.ProcessEnv = process.env,
    private readonly processes: ProcessTable = systemProcessTable(),
  ) {}

  /** Resolves when the child has ended by itself; rejects when it was killed, cannot start, or an earlier one is stuck. */
  run(args: readonly string[], signal: AbortSignal): Promise<ToolOutput> {
    const stuck = this.stuckPid();
    if (stuck !== undefined)
      return Promise.reject(
        new Error(`${this.file} (pid ${stuck}) hangs in the driver since an earlier probe`),
      );
    if (signal.aborted) return Promise.reject(new Error(`${this.file} was not started in time`));
    return new Promise((resolve, reject) => {
      // Numbers must not come with a local comma.
      const child = spawn(this.file, [...args], {
        stdio: ['ignore', 'pipe', 'pipe'],
        env: { ...this.env, LC_ALL: 'C' },
        detached: true,
      });
      this.last = child;
      const out: Buffer[] = [];
      const err: Buffer[] = [];
      let bytes = 0;
      const kill = (): void => {
        if (child.pid !== undefined) {
          signalProcess(-child.pid, 'SIGKILL');
          this.killed = child.pid;
        }
        // A stuck child keeps its pipes open; nobody waits for them.
        child.stdout.destroy();
        child.stderr.destroy();
      };
      const failed = (why: string): Error => new Error(`${this.file} ${args[0] ?? ''}: ${why}`);
      const aborted = (): void => {
        kill();
        reject(failed('killed at its deadline'));
      };
      const collect = (chunks: Buffer[]) => (chunk: Buffer) => {
        bytes += chunk.length;
        // Whoever asks next must find it gone; should it hang, the deadline tells.
        if (bytes > OUTPUT_MAX_BYTES) kill();
        else chunks.push(chunk);
      };
      signal.addEventListener('abort', aborted, { once: true });
      child.stdout.on('data', collect(out));
      child.stderr.on('data', collect(err));
      child.once('error', (cause) => reject(new Error(`${this.file} cannot be started`, { cause })));
      child.once('close', (code) => {
        signal.removeEventListener('abort', aborted);
        if (bytes > OUTPUT_MAX_BYTES) return reject(failed(`printed more than ${OUTPUT_MAX_BYTES} bytes`));
        return resolve({
          code,
          stdout: Buffer.concat(out).toString('utf8'),
          stderr: Buffer.concat(err).toString('utf8'),
        });
      });
    });
  }

  private stuckPid(): number | undefined {
    const { last, killed } = this;
    if (last?.pid !== undefined && last.exitCode === null && last.signalCode === null) return last.pid;
    if (killed === undefined) return undefined;
    const left = this.processes.list().find(({ groupId, zombie }) => groupId === killed && !zombie);
    if (left === undefined) this.killed = undefined;
    return left?.pid;
  }
}
