import { emptyRuns, type ByteRuns } from './byte-runs.js';
import { finishes } from './bytes/finish-reason.js';
import type { SseEvent, SseVisitor } from './bytes/sse-scanner.js';
import { EVENT_HELD_MAX_BYTES } from './bytes/sse-scanner.js';
import { UsageStripper, type StreamOutput } from './bytes/usage-stripper.js';
import { mergeUsage, type Usage } from './bytes/usage.js';
import type { EngineRoute } from './routes.js';

/**
 * An engine's event stream on its way to a client. Whole events leave as they came (without the usage nobody but the
 * gateway asked for); a half-received one waits for its end, so that an engine that dies in the middle of a line leaves
 * no broken line behind. No reader acts on half an event, so nothing is lost by it.
 */
export class EventStream implements SseVisitor, StreamOutput {
  /** What the last push released. */
  readonly runs: ByteRuns = emptyRuns();
  /** Data events in the last push. */
  events = 0;
  /** Those of them that carry something generated. */
  tokens = 0;
  /** The marker after which nothing of the answer follows has come. */
  done = false;
  /** Data of the first error event in the last push. */
  error: string | undefined;
  /** The very first data event was an error: the answer is one, whatever its status says. */
  startsWithError = false;
  /** Counts the engine reported so far. */
  usage: Usage | undefined;
  private readonly stripper: UsageStripper;
  private chunk: Buffer | undefined;
  private totalEvents = 0;
  private tokenSeen = false;
  private errorSeen = false;
  private usageChunkSeen = false;
  /** The last data event says why a choice ends. */
  private finished = false;
  /** The last data event was too large to be read. */
  private lastUnread = false;
  /** Where the last data event lies in the chunk at hand, until its end is kept. */
  private lastFrom = 0;
  private lastTo = 0;
  /** Its keys may be spelled in escapes. */
  private lastEscaped = false;

  constructor(
    private readonly route: EngineRoute,
    /** Usage is taken out: the client did not ask for it. */
    stripUsage: boolean,
  ) {
    this.stripper = new UsageStripper(this, this, EVENT_HELD_MAX_BYTES, stripUsage);
  }

  /** The client has a part of an event too large to hold back, and nothing may come in between. */
  get insideEvent(): boolean {
    return this.stripper.position !== 'boundary';
  }

  push(slab: Buffer, from: number, to: number): void {
    this.begin(slab);
    this.stripper.push(slab, from, to);
    if (this.lastTo > this.lastFrom)
      this.finished = finishes(slab, this.lastFrom, this.lastTo, this.lastEscaped);
    this.chunk = undefined;
  }

  /** The engine said itself that the answer failed. */
  get saidError(): boolean {
    return this.errorSeen;
  }

  /** The engine ended the stream: what waits for its end leaves too. */
  end(): void {
    this.begin(undefined);
    this.stripper.end();
  }

  /** Everything says that the answer was cut off, although its end came in good order. */
  get cutOff(): boolean {
    // Nobody knows what an event said that was too large: an error behind a whole answer would be a lie.
    if (this.done || this.errorSeen || this.lastUnread) return false;
    if (this.route.dialect !== 'openai') return true;
    if (!this.route.usageOption || this.usageChunkSeen) return false;
    return !this.finished;
  }

  // ---------------------------------------------------------------- what the stripper tells

  onBytes(buffer: Buffer, from: number, to: number): void {
    // Held memory is used again for the next event, before these runs leave.
    if (buffer === this.chunk) this.runs.add(buffer, from, to);
    else this.runs.addCopy(buffer, from, to);
  }

  onEvent(event: SseEvent): void {
    switch (event.kind) {
      case 'comment':
        return;
      case 'done':
        return this.finish();
      case 'data':
        this.noteData(event);
    }
  }

  /** Clients end at this event; what engines write behind it would reach some of them and not others. */
  private finish(): void {
    this.done = true;
    this.stripper.stop();
  }

  private noteData(event: SseEvent): void {
    const { dialect } = this.route;
    // A sign of life, as comments are elsewhere: no part of an answer, and no progress.
    if (dialect === 'anthropic' && typeOf(event) === 'ping') return;
    this.lastUnread = event.oversized;
    this.events += 1;
    this.totalEvents += 1;
    const usage = event.usage();
    if (usage !== undefined) this.usage = mergeUsage(this.usage, usage);
    if (event.isError()) return this.noteError(event);
    if (event.isUsageChunk()) {
      this.usageChunkSeen = true;
      return;
    }
    if (dialect !== 'openai' && LAST_EVENTS.has(typeOf(event))) this.finish();
    this.tokenSeen ||= event.carriesToken();
    if (this.tokenSeen) this.tokens += 1;
    this.keepEnd(event);
  }

  private noteError(event: SseEvent): void {
    this.errorSeen = true;
    if (this.totalEvents === 1) this.startsWithError = true;
    this.error ??= event.text();
    // Readers of this dialect go by the name, and silently drop an error that has none.
    if (this.route.dialect === 'anthropic' && event.name === '') this.stripper.insert(ERROR_NAME);
    // Its dialect has no other end after this one.
    if (this.route.dialect === 'responses' && typeOf(event) === 'response.failed') this.finish();
  }

  /** Of several events in one chunk only the last one is looked at. */
  private keepEnd(event: SseEvent): void {
    if (!this.route.usageOption) return;
    const { buffer, dataFrom, dataTo, escaped } = event;
    if (buffer === this.chunk) {
      this.lastFrom = dataFrom;
      this.lastTo = dataTo;
      this.lastEscaped = escaped;
    } else {
      this.lastFrom = this.lastTo = 0;
      this.finished = finishes(buffer, dataFrom, dataTo, escaped);
    }
  }

  private begin(chunk: Buffer | undefined): void {
    this.chunk = chunk;
    this.runs.clear();
    this.events = 0;
    this.tokens = 0;
    this.error = undefined;
    this.lastFrom = this.lastTo = 0;
  }
}

const ERROR_NAME = Buffer.from('event: error\n');

/** Last events of the dialects that have no `[DONE]`. */
const LAST_EVENTS: ReadonlySet<string> = new Set([
  'message_stop',
  'response.completed',
  'response.incomplete',
  'response.cancelled',
]);

/** What an event says it is: by its name, or by its data where an engine leaves the name out. */
function typeOf(event: SseEvent): string {
  const { name } = event;
  if (name !== '') return name;
  const data = event.json();
  const type = typeof data === 'object' && data !== null ? (data as { type?: unknown }).type : undefined;
  return typeof type === 'string' ? type : '';
}
