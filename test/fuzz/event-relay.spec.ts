import { describe, expect, it } from 'vitest';

import { finishes } from '../../src/router/bytes/finish-reason.js';
import { EventStream } from '../../src/router/event-stream.js';
import type { EngineRoute } from '../../src/router/routes.js';
import { ResponseReader } from '../../src/router/upstream/response-reader.js';
import type { Random } from '../../src/shared/random.js';
import { between, fuzz, fuzzTimeoutMs, inStrangeMemory, mutate, pick, randomSplit } from './fuzz.js';
import { referenceEvents, referenceJson } from './reference-sse.js';

const ROUTE = { dialect: 'openai', generates: true, usageOption: true, reportsUsage: true } as EngineRoute;
const HEAD = 'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n';

const DATA = [
  '{"choices":[{"delta":{"role":"assistant","content":""},"finish_reason":null}]}',
  '{"choices":[{"delta":{"content":"hi\\n0\\r\\n\\r\\n"},"finish_reason":null}]}',
  '{"choices":[{"delta":{"content":"\\"finish_reason\\":\\"stop\\""},"finish_reason" : null}]}',
  '{"choices":[{"delta":{},"finish_reason":"stop"}]}',
  '{"choices":[{"delta":{"content":"a"},"finish_reason": ""}]}',
  '{"choices":[{"finish_reason" :\t"length","delta":{"content":"日本"}}]}',
  '{"choices":[{"finish\\u005freason":"stop"}]}',
  '{"choices":[{"delta":{"content":"a\\u0041\\\\"},"finish_reason":null}]}',
  'not json',
];

/** Events as an engine writes them, and where in them its chunks may end. */
function randomEvents(random: Random): string {
  const lineEnd = pick(random, ['\n', '\n', '\n', '\r\n', '\r']);
  let text = '';
  for (let events = between(random, 1, 12); events > 0; events--) {
    if (random() < 0.1) text += `: keep-alive${lineEnd}${lineEnd}`;
    const padding = random() < 0.1 ? `: ${'x'.repeat(between(random, 0, 3_000))}${lineEnd}` : '';
    text += `${padding}data: ${pick(random, DATA)}${lineEnd}${lineEnd}`;
  }
  if (random() < 0.5) text += `data: [DONE]${lineEnd}${lineEnd}`;
  return text;
}

/** The same events in chunks: one event each, several, or cut anywhere; sizes spelled in every legal way. */
function inChunks(random: Random, text: string): Buffer {
  const bytes = Buffer.from(text);
  const whole = referenceEvents(bytes.toString('latin1')).events.map(({ raw }) => Buffer.from(raw, 'latin1'));
  const pieces = random() < 0.6 ? joined(random, whole) : randomSplit(random, bytes);
  const plain = random() < 0.6;
  const out = pieces.map((piece) => {
    const size = piece.length.toString(16);
    const written = plain
      ? size
      : pick(random, [size.toUpperCase(), `00${size}`, `${size};a="b"`, `${size};x`]);
    return Buffer.concat([Buffer.from(`${written}\r\n`), piece, Buffer.from('\r\n')]);
  });
  return Buffer.concat([Buffer.from(HEAD), ...out, Buffer.from('0\r\n\r\n')]);
}

/** Some events together in one piece. */
function joined(random: Random, events: readonly Buffer[]): Buffer[] {
  const pieces: Buffer[] = [];
  for (let at = 0; at < events.length;) {
    const count = pick(random, [1, 1, 1, 2, 5]);
    pieces.push(Buffer.concat(events.slice(at, at + count)));
    at += count;
  }
  return pieces;
}

/** What leaves for the client, read by read, through everything between the engine's socket and the client's front. */
function relay(reads: readonly Buffer[], slab: Buffer): { reads: string[]; cutOff: boolean; tokens: number } {
  const reader = new ResponseReader();
  const stream = new EventStream(ROUTE, false);
  const left: string[] = [];
  let tokens = 0;
  let before = 0;
  reader.reset(false);
  for (const read of reads) {
    // One memory for all reads, as on the way itself: nothing may be left in it for later.
    slab.fill('?', 0, before);
    before = read.copy(slab);
    const state = reader.push(slab, 0, read.length);
    if (reader.payloadFrom < reader.payloadTo)
      stream.push(reader.payload, reader.payloadFrom, reader.payloadTo);
    else stream.runs.clear();
    left.push(stream.runs.toBuffer().toString('latin1'));
    tokens += reader.payloadFrom < reader.payloadTo ? stream.tokens : 0;
    if (state === 'failed') throw new Error(reader.problem);
  }
  const { cutOff } = stream;
  // Of a CR LF that comes in two reads behind the last event the CR has ended everything.
  if (stream.done && left.join('').endsWith('\r\n\r')) left.push('\n');
  stream.end();
  left.push(stream.runs.toBuffer().toString('latin1'));
  return { reads: left, cutOff, tokens };
}

describe('the way of an event from engine to client', () => {
  it(
    'relays the same bytes in any framing and any reads, at event boundaries only',
    fuzz(200, (random) => {
      const text = randomEvents(random);
      const bytes = inChunks(random, text);
      const slab = Buffer.alloc(bytes.length + 8);
      const wanted = Buffer.from(text).toString('latin1');
      const { reads, cutOff, tokens } = relay(randomSplit(random, bytes), slab);
      expect(reads.join('')).toBe(wanted);
      let sofar = '';
      for (const read of reads.slice(0, -1)) {
        if (read === '') continue;
        sofar += read;
        expect(referenceEvents(sofar).rest).toBe('');
      }
      const whole = relay([bytes], slab);
      expect([whole.reads.join(''), whole.cutOff, whole.tokens]).toEqual([wanted, cutOff, tokens]);
      const data = referenceEvents(wanted).events.filter((event) => event.data !== undefined);
      const last = data.at(-1);
      expect(cutOff).toBe(last?.data !== '[DONE]' && !finishesSlowly(referenceJson(last!)));
    }),
    fuzzTimeoutMs(),
  );

  it(
    'sees what ends a choice as a parser does',
    fuzz(1_500, (random) => {
      const bytes = Buffer.from(pick(random, DATA));
      const wounded =
        random() < 0.5 ? bytes : mutate(random, bytes, ['"', ':', ' ', '"finish_reason"', '\\']);
      let json: unknown;
      try {
        json = JSON.parse(wounded.toString());
      } catch {
        return;
      }
      const memory = inStrangeMemory(random, wounded, '"finish_reason":"stop"');
      // Plain keys anywhere in the chunk count: none but a choice has it.
      if (finishesSlowly(json)) expect(finishes(memory, 0, memory.length, true)).toBe(true);
      else if (!/"finish_reason"\s*:\s*"[^"]/.test(wounded.toString())) {
        expect(finishes(memory, 0, memory.length, true)).toBe(false);
      }
    }),
    fuzzTimeoutMs(),
  );
});

function finishesSlowly(json: unknown): boolean {
  const { choices } = (json ?? {}) as { choices?: unknown };
  if (!Array.isArray(choices)) return false;
  return choices.some(
    (choice: { finish_reason?: unknown } | null) =>
      typeof choice?.finish_reason === 'string' && choice.finish_reason !== '',
  );
}
