/** The clients: an open loop that asks on schedule whatever the answers do, in a process of its own. */
import { Agent, request as httpRequest, type IncomingMessage } from 'node:http';

/** What one run of the load is to be. */
export interface LoadPlan {
  readonly url: string;
  /** Open loop: requests a second. */
  readonly ratePerSecond?: number;
  /** Closed loop: clients that ask again as soon as they are answered. */
  readonly clients?: number;
  readonly seconds: number;
  readonly maxTokens: number;
  /** Share of the clients that leave when nothing came for so long. */
  readonly impatientShare: number;
  readonly patienceMs: number;
  /** Leave all at once at the end instead of waiting for what is still open. */
  readonly leaveAtEnd: boolean;
}

/** One request as its client saw it; times are ms after the start of the load. */
export interface Seen {
  readonly sentMs: number;
  /** How late the generator itself was. */
  readonly lateMs: number;
  readonly endedMs: number;
  readonly firstTokenMs: number | undefined;
  /** `ok`, a code of an error, `left`, or what broke. */
  readonly result: string;
  readonly retryAfterSeconds: number | undefined;
}

export type LoadTell =
  | { readonly kind: 'left'; readonly open: number }
  /** `startWallMs`: the wall clock at 0 of all times. */
  | { readonly kind: 'done'; readonly startWallMs: number; readonly seen: readonly Seen[] };

const WORDS = 'time year people way day thing world life hand part child eye place work week case'.split(' ');
/** Requests open at once; a load that needs more measures the machine's limits. */
const OPEN_MAX = 8_000;

class Client {
  private readonly agent = new Agent({ keepAlive: true, maxSockets: Infinity, maxFreeSockets: 4_096 });
  private readonly startMs = performance.now();
  private readonly startWallMs = Date.now();
  private readonly seen: Seen[] = [];
  private readonly open = new Set<() => void>();
  private sent = 0;

  constructor(private readonly plan: LoadPlan) {}

  async run(): Promise<void> {
    const { ratePerSecond, clients = 0, seconds, leaveAtEnd } = this.plan;
    if (ratePerSecond === undefined) {
      await Promise.all(Array.from({ length: clients }, () => this.askUntil(seconds * 1_000)));
    } else await this.openLoop(ratePerSecond, seconds * 1_000);
    if (leaveAtEnd) {
      const leave = [...this.open];
      await tell({ kind: 'left', open: leave.length });
      for (const one of leave) one();
    }
    while (this.open.size > 0) await new Promise((resolve) => setTimeout(resolve, 20));
    await tell({ kind: 'done', startWallMs: this.startWallMs, seen: this.seen });
    this.agent.destroy();
  }

  private now(): number {
    return performance.now() - this.startMs;
  }

  private async askUntil(endMs: number): Promise<void> {
    while (this.now() < endMs) await this.ask(this.now());
  }

  private async openLoop(rate: number, endMs: number): Promise<void> {
    for (let n = 0; (n * 1_000) / rate < endMs; n++) {
      const dueMs = (n * 1_000) / rate;
      const leftMs = dueMs - this.now();
      if (leftMs > 0) await new Promise((resolve) => setTimeout(resolve, leftMs));
      if (this.open.size < OPEN_MAX) void this.ask(dueMs);
    }
  }

  private ask(dueMs: number): Promise<void> {
    const { url, maxTokens, impatientShare, patienceMs } = this.plan;
    const n = this.sent++;
    const body = JSON.stringify({
      model: 'm',
      stream: true,
      max_tokens: maxTokens,
      messages: [{ role: 'user', content: `${n} ${WORDS.slice(n % 8).join(' ')}` }],
    });
    return new Promise((resolve) => {
      const sentMs = this.now();
      let firstTokenMs: number | undefined;
      let ended = false;
      const end = (result: string, retryAfterSeconds?: number): void => {
        if (ended) return;
        ended = true;
        clearTimeout(patience);
        this.open.delete(leave);
        const times = { sentMs, lateMs: sentMs - dueMs, endedMs: this.now(), firstTokenMs };
        this.seen.push({ ...times, result, retryAfterSeconds });
        resolve();
      };
      const request = httpRequest(
        `${url}/v1/chat/completions`,
        {
          method: 'POST',
          agent: this.agent,
          headers: { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) },
        },
        (answer) => read(answer, () => (firstTokenMs ??= this.now()), end),
      );
      const leave = (): void => {
        end('left');
        request.destroy();
      };
      const impatient = n % 100 < impatientShare * 100;
      const patience = setTimeout(() => impatient && firstTokenMs === undefined && leave(), patienceMs);
      this.open.add(leave);
      request.on('error', (error: NodeJS.ErrnoException) => end(error.code ?? error.message));
      request.end(body);
    });
  }
}

function read(
  answer: IncomingMessage,
  onToken: () => void,
  end: (result: string, retryAfterSeconds?: number) => void,
): void {
  let text = '';
  answer.setEncoding('utf8');
  answer.on('data', (chunk: string) => {
    if (answer.statusCode === 200 && chunk.includes('"content":"')) onToken();
    text = (text + chunk).slice(-1_024);
  });
  answer.on('error', () => end('cut'));
  answer.on('end', () => {
    const retryAfter = answer.headers['retry-after'];
    if (answer.statusCode === 200) return end(text.includes('data: [DONE]') ? 'ok' : 'cut');
    const code = /"code":\s*"([a-z_]+)"/.exec(text)?.[1] ?? 'no_code';
    end(`${answer.statusCode} ${code}`, retryAfter === undefined ? undefined : Number(retryAfter));
  });
}

/** Settles when the parent has it. */
function tell(what: LoadTell): Promise<void> {
  return new Promise((resolve) => process.send?.(what, undefined, undefined, () => resolve()));
}

/** The child's side: runs one plan and tells the parent what the clients saw. */
export async function runLoad(plan: LoadPlan): Promise<void> {
  await new Client(plan).run();
  process.disconnect();
}
