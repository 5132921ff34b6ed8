import { describe, expect, it } from 'vitest';

import { EVENT_HELD_MAX_BYTES, SseScanner, type SseEvent, type SseVisitor } from './sse-scanner.js';

/** Keeps a line about each event, and the bytes of oversized ones. */
class Notes implements SseVisitor {
  readonly events: string[] = [];
  readonly released: number[] = [];
  constructor(private readonly note: (event: SseEvent) => string = (event) => event.kind) {}
  onEvent(event: SseEvent): void {
    this.events.push(this.note(event));
  }
  onOversized(_buffer: Buffer, from: number, to: number): void {
    this.released.push(to - from);
  }
}

function push(scanner: SseScanner, text: string, visitor: SseVisitor): void {
  const bytes = Buffer.from(text);
  scanner.push(bytes, 0, bytes.length, visitor);
}

describe('SseScanner', () => {
  it('tells events apart', () => {
    const notes = new Notes(
      (event) => `${event.kind} ${event.name} ${event.buffer.toString('utf8', event.dataFrom, event.dataTo)}`,
    );
    push(
      new SseScanner(),
      ': hi\n\nevent: ping\ndata: {}\n\ndata:{"a":1}\n\ndata: [DONE]\n\nid: 7\n\n\n',
      notes,
    );
    expect(notes.events).toEqual([
      'comment  ',
      'data ping {}',
      'data  {"a":1}',
      'done  [DONE]',
      'comment  ',
      'comment  ',
    ]);
  });

  it('knows where the stream stands', () => {
    const scanner = new SseScanner();
    const positions = ['data: {"id":"x', '"}\n', '\n', ': c', '\r', '\n', '\r', '\n', 'data: 1\n\n'].map(
      (piece) => {
        push(scanner, piece, new Notes());
        return scanner.position;
      },
    );
    expect(positions).toEqual([
      'mid_line',
      'mid_event',
      'boundary',
      'mid_line',
      'mid_event',
      'mid_event',
      'boundary',
      'boundary',
      'boundary',
    ]);
  });

  it('shows an event in pieces as one, and says which part of it is new', () => {
    const scanner = new SseScanner();
    const seen: unknown[] = [];
    const visitor: SseVisitor = {
      onEvent: (event) =>
        seen.push([
          event.startedEarlier,
          event.chunkFrom,
          event.chunkTo,
          event.buffer.toString('utf8', event.from, event.to),
        ]),
    };
    push(scanner, 'data: 1\n\ndata: ', visitor);
    push(scanner, '2\n', visitor);
    expect(scanner.heldBytes).toBe(8);
    push(scanner, '\ndata: 3\n\n', visitor);
    expect(seen).toEqual([
      [false, 0, 9, 'data: 1\n\n'],
      [true, 0, 1, 'data: 2\n\n'],
      [false, 1, 10, 'data: 3\n\n'],
    ]);
  });

  it('shows what is left at the end', () => {
    const scanner = new SseScanner();
    const notes = new Notes((event) => `${event.kind} ${event.unterminated}`);
    push(scanner, 'data: 1\n\ndata: [DONE]', notes);
    scanner.end(notes);
    scanner.end(notes);
    expect(notes.events).toEqual(['data false', 'done true']);
  });

  it('holds no more than its limit and goes on after it', () => {
    const scanner = new SseScanner();
    const notes = new Notes((event) => `${event.kind} ${event.oversized} ${event.chunkTo - event.chunkFrom}`);
    const piece = 'x'.repeat(EVENT_HELD_MAX_BYTES / 4);
    push(scanner, 'data: ', notes);
    for (let i = 0; i < 8; i++) {
      push(scanner, piece, notes);
      expect(scanner.heldBytes).toBeLessThanOrEqual(EVENT_HELD_MAX_BYTES);
      expect(scanner.position).toBe('mid_line');
    }
    push(scanner, 'y\n\ndata: 1\n\n', notes);
    expect(notes.released).toEqual([6 + 3 * piece.length]);
    expect(notes.events).toEqual(['data true 3', 'data false 9']);
    expect(scanner.position).toBe('boundary');
  });

  it('sees failures, usage and tokens by dialect', () => {
    const facts = (event: SseEvent) =>
      [
        event.isError() && 'error',
        event.usage() && 'usage',
        event.isUsageChunk() && 'chunk',
        event.carriesToken() && 'token',
      ]
        .filter(Boolean)
        .join(' ');
    const notes = new Notes(facts);
    push(new SseScanner(), [
      'data: {"choices":[{"delta":{"role":"assistant"}}],"usage":null}',
      'data: {"choices":[{"delta":{"content":"usage"}}]}',
      'data: {"choices":[{"delta":{"content":"\\"usage\\":{"}}],"usage":{"prompt_tokens":1}}',
      'data: {"choices":[],"usage" : {"prompt_tokens":1}}',
      'data: {"object":"error","message":"full"}',
      'event: error\ndata: {"type":"x"}',
      'event: message_start\ndata: {"type":"message_start","message":{"usage":{"input_tokens":3}}}',
      'data: not json "usage":{ "error"',
      'data: {"choices":[],"us\\u0061ge"\t:\t{"prompt_tokens":1}}',
      'data: {"\\u0065rror" : {"message":"full"}}',
      'data: {"choices":[{"delta":{"content":"\\u0061"}}]}',
      '',
    ].join('\n\n'), notes); // prettier-ignore
    expect(notes.events).toEqual(['', 'token', 'usage token', 'usage chunk', 'error', 'error', 'usage', '',
      'usage chunk', 'error', 'token']); // prettier-ignore
  });

  it('is good for another stream after reset', () => {
    const scanner = new SseScanner();
    const notes = new Notes();
    push(scanner, 'data: half\r\n\r', notes);
    push(scanner, 'data: half', notes);
    scanner.reset();
    expect(scanner.position).toBe('boundary');
    push(scanner, '\n\ufeffdata: 1\n\n', notes);
    expect(notes.events).toEqual(['data', 'comment', 'comment']);
  });
});
