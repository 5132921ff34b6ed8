/** Serves logs to whoever asks through the server: the kept end of a run, and what comes after it. */
import type { LogChunk, LogRequest } from '../agent-protocol/messages.js';
import { LOG_CHUNK_MAX_BYTES, LOG_REQUESTS_MAX } from './limits.js';
import type { Redact } from './redact.js';
import { readLogFile, RunLog } from './run-log.js';
import type { ShardRunner } from './shard-runner.js';

export interface LogRequestsDeps {
  find(shardId: string): ShardRunner | undefined;
  /** Where a shard's files are, also of one that is gone. */
  directoryOf(shardId: string): string;
  /** What must be taken out of them. */
  redactorOf(shardId: string): Redact;
  /** False when the stream takes nothing now; `drained` is called once it does again. */
  send(chunk: LogChunk): boolean;
}

/** Bytes that may wait for the stream; what a follower's engine prints beyond is dropped and counted. */
const WAITING_MAX_BYTES = 16 * 1024 * 1024;

export class LogRequests {
  private readonly open = new Map<string, () => void>();
  private waiting: LogChunk[] = [];
  private waitingBytes = 0;

  constructor(private readonly deps: LogRequestsDeps) {}

  async handle(request: LogRequest): Promise<void> {
    if (request.stop) {
      this.open.get(request.requestId)?.();
      return;
    }
    if (this.open.size >= LOG_REQUESTS_MAX) {
      this.fail(request, `more than ${LOG_REQUESTS_MAX} log requests at once`);
      return;
    }
    const runner = this.deps.find(request.shardId);
    const live = request.previous ? undefined : runner?.output;
    const lines = live?.lines() ?? (await this.fromFile(request));
    if (lines.length === 0 && live === undefined) {
      this.fail(request, `shard ${request.shardId} has no ${request.previous ? 'previous ' : ''}output here`);
      return;
    }
    const wanted = request.tailLines === 0 ? lines : lines.slice(-request.tailLines);
    this.sendLines(request, wanted);
    if (request.follow && live !== undefined && runner !== undefined && !runner.hasEnded)
      this.follow(request, live, runner);
    else this.finish(request);
  }

  /** The stream is gone, and with it everybody who listened. */
  closeAll(): void {
    for (const close of this.open.values()) close();
    this.waiting = [];
    this.waitingBytes = 0;
  }

  /** Sends what waits, as far as the stream takes it. */
  drained(): void {
    while (this.waiting[0] !== undefined && this.deps.send(this.waiting[0])) {
      this.waitingBytes -= this.waiting[0].data.length;
      this.waiting.shift();
    }
  }

  private enqueue(chunk: LogChunk): void {
    this.waiting.push(chunk);
    this.waitingBytes += chunk.data.length;
    this.drained();
  }

  private follow(request: LogRequest, live: RunLog, runner: ShardRunner): void {
    let dropped = 0;
    const unlisten = live.listen((lines) => {
      if (lines.length === 0) return;
      const told = dropped === 0 ? lines : [`[${dropped} lines skipped]`, ...lines];
      dropped = this.sendLines(request, told) ? 0 : dropped + lines.length;
    });
    const close = (): void => {
      if (!this.open.delete(request.requestId)) return;
      unlisten();
      this.finish(request);
    };
    this.open.set(request.requestId, close);
    void runner.done.then(close);
  }

  private fromFile({ shardId, previous }: LogRequest): Promise<string[]> {
    const directory = this.deps.directoryOf(shardId);
    const path = previous ? RunLog.previousFile(directory) : RunLog.currentFile(directory);
    return readLogFile(path, this.deps.redactorOf(shardId));
  }

  /** False when too much waits already. */
  private sendLines({ requestId }: LogRequest, lines: readonly string[]): boolean {
    if (lines.length === 0) return true;
    if (this.waitingBytes > WAITING_MAX_BYTES) return false;
    const bytes = Buffer.from(`${lines.join('\n')}\n`, 'utf8');
    for (let at = 0; at < bytes.length; at += LOG_CHUNK_MAX_BYTES) {
      const data = bytes.subarray(at, at + LOG_CHUNK_MAX_BYTES);
      this.enqueue({ requestId, data, end: false });
    }
    return true;
  }

  private finish({ requestId }: LogRequest): void {
    this.enqueue({ requestId, data: new Uint8Array(), end: true });
  }

  private fail({ requestId }: LogRequest, error: string): void {
    this.enqueue({ requestId, data: new Uint8Array(), end: true, error });
  }
}
