import { describe, expect, it } from 'vitest';

import { EVENT_HELD_MAX_BYTES, type SseEvent } from './sse-scanner.js';
import { UsageStripper } from './usage-stripper.js';

const TOKEN = 'data: {"choices":[{"delta":{"content":"a"}}]}\n\n';
const USAGE = 'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3}}\n\n';
const DONE = 'data: [DONE]\n\n';

function strip(pieces: readonly string[]): { out: string[]; seen: string[]; stripper: UsageStripper } {
  const out: string[] = [];
  const seen: string[] = [];
  const observer = {
    onEvent: (event: SseEvent) => void seen.push(event.usage() === undefined ? event.kind : 'usage'),
  };
  const stripper = new UsageStripper(
    { onBytes: (buffer, from, to) => void out.push(buffer.toString('utf8', from, to)) },
    observer,
  );
  for (const piece of pieces) stripper.push(Buffer.from(piece), 0, Buffer.byteLength(piece));
  return { out, seen, stripper };
}

describe('UsageStripper', () => {
  it('takes out the usage chunk and shows it to the observer', () => {
    const { out, seen } = strip([TOKEN + TOKEN, TOKEN + USAGE + DONE]);
    expect(out).toEqual([TOKEN + TOKEN, TOKEN, DONE]);
    expect(seen).toEqual(['data', 'data', 'data', 'usage', 'done']);
  });

  it('passes on in one call what came in one and stays', () => {
    expect(strip([`: ping\n\n${TOKEN}${TOKEN}${DONE}`]).out).toHaveLength(1);
  });

  it.each([1, 5, 50])('works in pieces of %d', (length) => {
    const text = TOKEN + USAGE + TOKEN + DONE;
    const pieces = Array.from({ length: Math.ceil(text.length / length) }, (_, i) =>
      text.slice(i * length, (i + 1) * length),
    );
    const { out, stripper } = strip(pieces);
    expect(out.join('')).toBe(TOKEN + TOKEN + DONE);
    expect(stripper.position).toBe('boundary');
  });

  it('takes the usage member out of chunks that stay', () => {
    const { out } = strip([
      'data: {"choices":[{"delta":{}}],"usage":null}\n\ndata: {"usage":{"prompt_tokens":1},"choices":[{"delta":{}}]}\n\n',
    ]);
    expect(out.join('')).toBe('data: {"choices":[{"delta":{}}]}\n\ndata: {"choices":[{"delta":{}}]}\n\n');
  });

  /** A search for the plain bytes let these pass to clients that asked for no usage. */
  it('takes it out however its key is spelled', () => {
    const { out, seen } = strip([
      'data: {"choices":[],"us\\u0061ge":{"prompt_tokens":1}}\n\n',
      'data: {"choices" : [ ] , "\\u0075\\u0073\\u0061\\u0067\\u0065"\t: {"prompt_tokens":1}}\n\n',
      'data: {"id":"x","usage":{"prompt_tokens":1}}\n\n',
      'data: {"choices":[{"delta":{"content":"\\u0061"}}],"usag\\u0065" : null}\n\n',
    ]);
    expect(out.join('')).toBe('data: {"choices":[{"delta":{"content":"\\u0061"}}]}\n\n');
    expect(seen).toEqual(['usage', 'usage', 'usage', 'data']);
  });

  it('leaves what only looks like it', () => {
    const text =
      'data: {"choices":[]}\n\ndata: {"choices":[],"usage":7}x\n\ndata: {"choices":[{"delta":{"content":"\\"usage\\":{}"}}]}\n\n';
    expect(strip([text]).out.join('')).toBe(text);
  });

  it('keeps half an event back, so that a broken stream ends between events', () => {
    const { out, stripper } = strip([TOKEN, 'data: {"id":"x","cho']);
    expect(out.join('')).toBe(TOKEN);
    expect(stripper.position).toBe('boundary');
    stripper.end();
    expect(out.join('')).toBe(`${TOKEN}data: {"id":"x","cho`);
  });

  it('keeps the two bytes of a line end together', () => {
    const usage = USAGE.replaceAll('\n', '\r\n');
    const { out } = strip([usage.slice(0, -1), '\ndata: 1\r\n\r', '\ndata: 2\r\n\r\n']);
    expect(out.join('')).toBe('data: 1\r\n\r\ndata: 2\r\n\r\n');
  });

  it('lets an event pass that is too large to be held', () => {
    const large = `data: ${'x'.repeat(EVENT_HELD_MAX_BYTES)}\n\n`;
    const half = large.length / 2;
    const { out, stripper } = strip([TOKEN, large.slice(0, half), large.slice(half, -2)]);
    expect(stripper.position).toBe('mid_line');
    stripper.push(Buffer.from(`\n\n${USAGE}${DONE}`), 0, 2 + USAGE.length + DONE.length);
    expect(out.join('') === TOKEN + large + DONE).toBe(true);
  });
});
