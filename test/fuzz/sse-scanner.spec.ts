import { describe, expect, it } from 'vitest';

import { carriesToken, isErrorEvent, isUsageChunk } from '../../src/router/bytes/event-meaning.js';
import { SseScanner, type SseEvent, type SseVisitor } from '../../src/router/bytes/sse-scanner.js';
import { UsageStripper } from '../../src/router/bytes/usage-stripper.js';
import { usageOf } from '../../src/router/bytes/usage.js';
import type { Random } from '../../src/shared/random.js';
import { between, corpusOf, fuzz, fuzzTimeoutMs, mutate, pick, randomSplit } from './fuzz.js';
import {
  referenceEvent,
  referenceEvents,
  referenceJson,
  referencePosition,
  type ReferenceEvent,
} from './reference-sse.js';

const DATA = [
  '{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}',
  '{"choices":[{"delta":{"content":"hi"}}],"usage":null}',
  '{"choices":[{"delta":{"reasoning_content":"hm"}}]}',
  '{"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}',
  '{"choices":[{"text":"日本"}]}',
  '{"choices":[{"delta":{"content":"\\"usage\\":{\\"a\\":1} and \\"error\\""}}]}',
  '{"choices":[{"delta":{"content":"usage"},"x":"usage","y":"error"}]}',
  '{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":4}}}',
  '{"usage" : {"prompt_tokens":1},"choices":[ ]}',
  '{"choices":[{"delta":{"content":"x"}}],"usage":{"prompt_tokens":7,"completion_tokens":1}}',
  '{"choices":[]}',
  '{"error":{"message":"no","type":"x","code":500}}',
  '{"object":"error","message":"The request queue is full."}',
  '{"type":"message_start","message":{"usage":{"input_tokens":5,"cache_read_input_tokens":2,"output_tokens":1}}}',
  '{"type":"content_block_delta","delta":{"type":"text_delta","text":"a"}}',
  '{"type":"message_delta","usage":{"output_tokens":9}}',
  '{"type":"response.output_text.delta","delta":"a"}',
  '{"type":"response.completed","response":{"error":null,"usage":{"input_tokens":5,"output_tokens":2}}}',
  '{"type":"response.failed","response":{"error":{"code":"x"}}}',
  '[DONE]', ' [DONE]', '[DONE] ', '\t[DONE]', '[DONE]x', '[DONE', '', 'not json', '{"usage":', '7',
]; // prettier-ignore

const NAMES = ['message_start', 'error', 'ping', 'response.failed', 'response.completed', ''];
const COMMENTS = [
  ':',
  ': keep-alive',
  ': data: {"choices":[],"usage":{}}',
  'id: 7',
  'retry: 100',
  'data2: x',
  'dat',
  'event',
];
const TOKENS = [
  '\n',
  '\r',
  '\r\n',
  '\n\n',
  'data',
  'data:',
  'data: ',
  'event: ',
  ':',
  ' ',
  '"usage":{',
  '"usage":null,',
  '"error":',
  '\ufeff',
  '[DONE]',
  '{',
  '}',
  'é',
  '\0',
];

function randomStream(random: Random): Buffer {
  const lineEnd = pick(random, ['\n', '\n', '\n', '\r\n', '\r']);
  const blanks = () => (random() < 0.1 ? pick(random, ['\n', '\r\n', '\r']) : lineEnd);
  let text = random() < 0.1 ? '\ufeff' : '';
  for (let events = between(random, 1, 8); events > 0; events--) {
    if (random() < 0.2) text += `${pick(random, COMMENTS)}${blanks()}`;
    if (random() < 0.3) text += `event:${pick(random, ['', ' '])}${pick(random, NAMES)}${blanks()}`;
    for (let lines = pick(random, [0, 1, 1, 1, 1, 2]); lines > 0; lines--)
      text += `data:${pick(random, ['', ' '])}${pick(random, DATA)}${blanks()}`;
    if (events > 1 || random() < 0.8) text += blanks();
  }
  return Buffer.from(text);
}

/** Checks one event that the scanner shows against the slow reading of the same bytes. */
function checkEvent(event: SseEvent, wanted: ReferenceEvent): void {
  expect(event.buffer.toString('latin1', event.from, event.to)).toBe(wanted.raw);
  expect(event.name).toBe(Buffer.from(wanted.name, 'latin1').toString());
  const json = referenceJson(wanted);
  const isDone = wanted.data !== undefined && wanted.dataLines === 1 && /^[ \t]*\[DONE\]/.test(wanted.data);
  expect(event.kind).toBe(wanted.data === undefined ? 'comment' : isDone ? 'done' : 'data');
  expect(event.json()).toEqual(json);
  expect(event.carriesToken()).toBe(carriesToken(json));
  expect(event.usage()).toEqual(usageOf(json));
  expect(event.isUsageChunk()).toBe(isUsageChunk(json));
  // Every failure engines send has the word in it; only the event's name is looked at besides.
  const mayFail = wanted.data?.includes('"error"') === true || /^(error|response\.failed)$/.test(wanted.name);
  expect(event.isError()).toBe(event.kind === 'data' && mayFail && isErrorEvent(wanted.name, json));
}

/** The slow reading starts from the beginning each time: with many pieces, every tenth must do. */
function isLookedAt(index: number, pieces: readonly Buffer[]): boolean {
  return pieces.length < 30 || index % 10 === 3;
}

function checkScanner(pieces: readonly Buffer[]): void {
  const whole = Buffer.concat(pieces).toString('latin1');
  const wanted = referenceEvents(whole);
  const scanner = new SseScanner();
  let seen = 0;
  let sofar = '';
  let covered = 0;
  const visitor: SseVisitor = {
    onEvent(event) {
      const reference = wanted.events[seen++] ?? referenceEvent(wanted.rest, seen === 1);
      // The LF of a CR LF in two pieces comes after the event it ends.
      if (event.buffer.toString('latin1', event.from, event.to) !== reference.raw) {
        expect(`${event.buffer.toString('latin1', event.from, event.to)}\n`).toBe(reference.raw);
        expect(scanner.lfMayFollow).toBe(true);
      } else checkEvent(event, reference);
      covered += event.chunkTo - event.chunkFrom;
    },
  };
  for (const [index, piece] of pieces.entries()) {
    sofar += piece.toString('latin1');
    const chunk = Buffer.concat([Buffer.from('x'), piece, Buffer.from('\n\r\n')]);
    scanner.push(chunk, 1, 1 + piece.length, visitor);
    if (isLookedAt(index, pieces)) expect(scanner.position).toBe(referencePosition(referenceEvents(sofar)));
  }
  expect(seen).toBe(wanted.events.length);
  expect(covered).toBeLessThanOrEqual(whole.length);
  scanner.end(visitor);
  expect(seen).toBe(wanted.events.length + (wanted.rest === '' ? 0 : 1));
  expect(scanner.position).toBe('boundary');
}

/** What a client should see of a stream whose usage was asked for by the gateway. */
function withoutUsage(event: ReferenceEvent): ReferenceEvent[] {
  const json = referenceJson(event);
  if (isUsageChunk(json)) return [];
  if (typeof json !== 'object' || json === null || !('usage' in json) || event.dataLines > 1) return [event];
  const { usage: _usage, ...rest } = json as Record<string, unknown>;
  return [{ ...event, raw: '', data: JSON.stringify(rest) }];
}

function checkStripper(pieces: readonly Buffer[], heldMaxBytes?: number): void {
  const wanted = referenceEvents(Buffer.concat(pieces).toString('latin1'));
  const last = wanted.rest === '' ? [] : [referenceEvent(wanted.rest, wanted.events.length === 0)];
  const expected = [...wanted.events, ...last].flatMap(withoutUsage);
  let out = '';
  let seen = 0;
  const output = {
    onBytes: (buffer: Buffer, from: number, to: number) => void (out += buffer.toString('latin1', from, to)),
  };
  const stripper = new UsageStripper(output, { onEvent: () => void seen++ }, heldMaxBytes);
  for (const [index, piece] of pieces.entries()) {
    stripper.push(Buffer.concat([Buffer.from('y'), piece, Buffer.from('\r\n')]), 1, 1 + piece.length);
    if (isLookedAt(index, pieces)) expect(stripper.position).toBe(referencePosition(referenceEvents(out)));
  }
  stripper.end();
  expect(seen).toBe(wanted.events.length + last.length);
  if (heldMaxBytes !== undefined) return;
  const got = referenceEvents(out);
  const rest = got.rest === '' ? [] : [referenceEvent(got.rest, got.events.length === 0)];
  // Blank lines of different kinds may run together where an event was between them; they mean nothing.
  const isSeen = (event: ReferenceEvent) => event.data !== undefined;
  expect([...got.events, ...rest].filter(isSeen).map(meaning)).toEqual(expected.filter(isSeen).map(meaning));
  expect(expected.filter((event) => event.raw !== '').every((event) => out.includes(event.raw))).toBe(true);
}

function meaning(event: ReferenceEvent): unknown {
  return [event.name, referenceJson(event) ?? event.data];
}

describe('SSE scanner against a naive splitter', () => {
  it.each(corpusOf('sse-scanner').map(({ name, bytes }) => [name, bytes] as const))(
    'corpus: %s',
    async (_name, bytes) => {
      await fuzz(12, (random) => checkScanner(randomSplit(random, bytes)))();
      await fuzz(12, (random) => checkStripper(randomSplit(random, bytes)))();
    },
  );

  it(
    'whole streams',
    fuzz(600, (random) => checkScanner(randomSplit(random, randomStream(random)))),
    fuzzTimeoutMs(),
  );

  it(
    'wounded streams',
    fuzz(1000, (random) => checkScanner(randomSplit(random, mutate(random, randomStream(random), TOKENS)))),
    fuzzTimeoutMs(),
  );
});

describe('usage stripper against whole events', () => {
  it(
    'takes out the usage and nothing else',
    fuzz(800, (random) => checkStripper(randomSplit(random, randomStream(random)))),
    fuzzTimeoutMs(),
  );

  it(
    'loses no byte of events too large to be held',
    fuzz(400, (random) => {
      const stream = Buffer.from(
        randomStream(random).toString('latin1').replaceAll('usage', 'ysage'),
        'latin1',
      );
      const pieces = randomSplit(random, stream);
      checkStripper(pieces, 40);
      const out: Buffer[] = [];
      const output = {
        onBytes: (buffer: Buffer, from: number, to: number) =>
          void out.push(Buffer.from(buffer.subarray(from, to))),
      };
      const stripper = new UsageStripper(output, { onEvent: () => {} }, 40);
      for (const piece of pieces) stripper.push(piece, 0, piece.length);
      stripper.end();
      expect(Buffer.concat(out).toString('latin1')).toBe(stream.toString('latin1'));
    }),
    fuzzTimeoutMs(),
  );
});
