/**
 * The output of one shard: a file the engine appends to by itself, read by the agent. The engine therefore never waits
 * for a reader and loses nothing when the agent restarts. Only the current and the previous run are kept; while no agent
 * reads, the log warden bounds the file.
 */
import { closeSync, mkdirSync, openSync, renameSync, rmSync } from 'node:fs';
import { open, type FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../shared/clock.js';
import { LOG_RING_LINES, type AgentTimings } from './limits.js';
import { cutFile, cutLogFile } from './log-cut.js';
import { LineSplitter } from './log-text.js';
import type { Redact } from './redact.js';
import { pause } from './wait.js';

/** Told of new cleaned lines, and of what stands in the unfinished last one. */
export type LogListener = (lines: readonly string[], unfinished: string) => void;

/** An engine that writes faster than this per look is not read in full; its file is still bounded. */
const READ_MAX_BYTES = 4 * 1024 * 1024;
const CHUNK_BYTES = 256 * 1024;
/** How much of an existing file is read when a running engine is taken over. */
const TAKE_OVER_BYTES = 256 * 1024;

export interface RunLogDeps {
  readonly clock: Clock;
  readonly timings: Pick<AgentTimings, 'logPollMs' | 'logFileMaxBytes'>;
}

export class RunLog {
  private readonly ring: string[] = [];
  private readonly listeners = new Set<LogListener>();
  private readonly ended = new AbortController();
  private splitter: LineSplitter;
  private file: FileHandle | undefined;
  private position = 0;
  private reading: Promise<void> = Promise.resolve();

  /** `redact` is applied to everything before anybody sees it. */
  constructor(
    private readonly directory: string,
    private readonly redact: Redact,
    private readonly deps: RunLogDeps,
  ) {
    this.splitter = new LineSplitter(redact);
  }

  static currentFile(directory: string): string {
    return join(directory, 'current.log');
  }
  static previousFile(directory: string): string {
    return join(directory, 'previous.log');
  }

  /** Makes room for a new run and opens its file for appending; the descriptor goes to the engine. */
  openForRun(): number {
    mkdirSync(this.directory, { recursive: true, mode: 0o700 });
    const current = RunLog.currentFile(this.directory);
    try {
      renameSync(current, RunLog.previousFile(this.directory));
    } catch {
      // The first run has no predecessor.
    }
    rmSync(cutFile(current), { force: true });
    return openSync(current, 'a', 0o600);
  }

  /** Begins to read; `takeOver` skips what an earlier agent has already seen, except its end. */
  async follow(takeOver = false): Promise<void> {
    const path = RunLog.currentFile(this.directory);
    mkdirSync(this.directory, { recursive: true, mode: 0o700 });
    // An adopted engine's file may have been removed by hand; reading nothing is better than not adopting.
    if (takeOver) closeSync(openSync(path, 'a', 0o600));
    this.file = await open(path, 'r');
    if (takeOver) this.position = Math.max(0, (await this.file.stat()).size - TAKE_OVER_BYTES);
    void this.loop();
  }

  /** Cleaned, redacted lines, oldest first; the unfinished line is the last. */
  lines(): readonly string[] {
    const unfinished = this.splitter.unfinished();
    return unfinished === '' ? this.ring : [...this.ring, unfinished];
  }

  /** Calls `listener` for what comes from now on; the result ends that. */
  listen(listener: LogListener): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** Reads what is there now; for the moment after the engine's end. */
  async catchUp(): Promise<void> {
    // One reader at a time, or both would read the same bytes.
    this.reading = this.reading.then(() => this.readNew());
    await this.reading;
  }

  async close(): Promise<void> {
    this.ended.abort();
    await this.catchUp();
    await this.file?.close();
    this.file = undefined;
  }

  private async loop(): Promise<void> {
    while (!this.ended.signal.aborted) {
      await this.catchUp();
      await pause(this.deps.clock, this.deps.timings.logPollMs, this.ended.signal);
    }
  }

  private async readNew(): Promise<void> {
    const { file } = this;
    if (file === undefined) return;
    try {
      const { size } = await file.stat();
      if (size < this.position) this.position = 0;
      if (size - this.position > READ_MAX_BYTES) this.skipTo(size - CHUNK_BYTES);
      for (let left = size - this.position; left > 0;) {
        const read = await file.read(
          Buffer.allocUnsafe(Math.min(left, CHUNK_BYTES)),
          0,
          Math.min(left, CHUNK_BYTES),
          this.position,
        );
        if (read.bytesRead === 0) break;
        this.position += read.bytesRead;
        left -= read.bytesRead;
        this.take(read.buffer.subarray(0, read.bytesRead));
      }
      if (this.position > this.deps.timings.logFileMaxBytes) await this.cut();
    } catch (error) {
      // A full or failing disk must not end the watching of an engine that still serves.
      this.push([`[the log file cannot be read: ${error instanceof Error ? error.message : String(error)}]`]);
    }
  }

  private skipTo(position: number): void {
    this.splitter = new LineSplitter(this.redact);
    this.push([`[${position - this.position} bytes of output skipped]`]);
    this.position = position;
  }

  private async cut(): Promise<void> {
    this.position = 0;
    await cutLogFile(RunLog.currentFile(this.directory), this.deps.timings.logFileMaxBytes);
  }

  private take(chunk: Uint8Array): void {
    this.push(this.splitter.push(chunk));
  }

  private push(lines: readonly string[]): void {
    this.ring.push(...lines);
    if (this.ring.length > LOG_RING_LINES) this.ring.splice(0, this.ring.length - LOG_RING_LINES);
    const unfinished = this.splitter.unfinished();
    for (const listener of this.listeners) listener(lines, unfinished);
  }
}

/** The last lines of a run that is not followed (any more), read from its file. */
export async function readLogFile(path: string, redact: Redact): Promise<string[]> {
  let file: FileHandle;
  try {
    file = await open(path, 'r');
  } catch {
    return [];
  }
  try {
    const { size } = await file.stat();
    const start = Math.max(0, size - 1024 * 1024);
    const buffer = Buffer.alloc(size - start);
    const { bytesRead } = await file.read(buffer, 0, buffer.length, start);
    const splitter = new LineSplitter(redact);
    const lines = splitter.push(buffer.subarray(0, bytesRead));
    const last = splitter.unfinished();
    return [...lines, ...(last === '' ? [] : [last])].slice(-LOG_RING_LINES);
  } finally {
    await file.close();
  }
}
