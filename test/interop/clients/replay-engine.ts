import { SimEngine } from '../../../src/engines/sim/sim-engine.js';
import { FakeEngine, type RecordedRequest } from '../../support/fake-engine/fake-engine.js';
import type { Wire } from '../../support/fake-engine/wire.js';

/** Writes a good answer's events in its own way. */
export type Writer = (
  events: readonly string[],
  wire: Wire,
  request: RecordedRequest,
) => Promise<void> | void;

/**
 * An engine whose answers are a simulated engine's, written byte by byte as a spec wants: right in content for every
 * client API, as odd on the wire as real engines and what stands in front of them are.
 */
export class ReplayEngine {
  private writer: Writer = (events, wire) => writeStream(wire, events);

  private constructor(
    readonly fake: FakeEngine,
    private readonly sim: SimEngine,
  ) {
    fake.onRequest((request, wire) => this.answer(request, wire));
  }

  static async start(models: readonly string[]): Promise<ReplayEngine> {
    const sim = new SimEngine({ models });
    await sim.start();
    return new ReplayEngine(await FakeEngine.listen(), sim);
  }

  /** How answers are written from now on. */
  write(writer: Writer): void {
    this.writer = writer;
  }

  /** Requests for text; probes of the gateway are none. */
  get posts(): RecordedRequest[] {
    return this.fake.requests.filter(({ method }) => method === 'POST');
  }

  async stop(): Promise<void> {
    await this.fake.close();
    await this.sim.stop();
  }

  private async answer(request: RecordedRequest, wire: Wire): Promise<void> {
    if (request.method !== 'POST') return wire.respond(200, '{}');
    const right = await fetch(this.sim.url + request.target, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: request.body,
    });
    const text = await right.text();
    const contentType = right.headers.get('content-type') ?? '';
    if (!contentType.startsWith('text/event-stream')) return wire.respond(right.status, text);
    const events = text
      .split('\n\n')
      .slice(0, -1)
      .map((event) => `${event}\n\n`);
    await this.writer(events, wire, request);
  }
}

/** The everyday way: chunked, one write per event. */
export async function writeStream(wire: Wire, events: readonly string[]): Promise<void> {
  await wire.startStream();
  for (const event of events) await wire.chunk(event);
  await wire.lastChunk();
}
