import { describe, expect, it } from 'vitest';

import { scanBody, type ScannedBody } from '../../src/router/bytes/json-scan.js';
import { JSON_DEPTH_MAX } from '../../src/router/bytes/json-walker.js';
import { spliceBody } from '../../src/router/bytes/splice.js';
import type { Random } from '../../src/shared/random.js';
import { between, corpusOf, fuzz, fuzzTimeoutMs, inStrangeMemory, mutate, pick } from './fuzz.js';
import { referenceDepth, referenceMembers } from './reference-json.js';

const TOKENS = [
  '{', '}', '[', ']', ',', ':', '"', '\\', '\\"', '\\\\', '\\u00', '\\u0041', '\\ud83d', ' ', '\n', '\t', '\x00', '\x1f', '\x7f',
  'true', 'false', 'null', 'tru', '-', '0', '01', '1.', '1.5', '1e', '1e5', '-0', '1E+2', 'é', '日本', '\u2028', '\ufeff',
  '"model":"m2"', '"Model":1,', '"mod\\u0065l":"x",', '"stream":true,', '"stream_options":{"include_usage":false},',
]; // prettier-ignore

const TEXTS = [
  '',
  'hi',
  'a "quoted" word',
  'back\\slash',
  'line\nline',
  '日本語',
  '🙂',
  '\u0001',
  '"model":"x"',
  '# title',
  'x\\]\\#\n]#',
  'plain '.repeat(30),
];

function randomValue(random: Random, depth: number): unknown {
  const kind = between(random, 0, depth > 4 ? 4 : 7);
  switch (kind) {
    case 0:
      return pick(random, [true, false, null]);
    case 1:
      return pick(random, [0, -1, 1.5, 1e21, -0.001, 12345, 1e-7]);
    case 2:
    case 3:
    case 4:
      return pick(random, TEXTS);
    case 5:
      return Array.from({ length: between(random, 0, 4) }, () => randomValue(random, depth + 1));
    default:
      return Object.fromEntries(
        Array.from({ length: between(random, 0, 4) }, (_, i) => [
          pick(random, ['role', 'content', '', 'model', `k${i}`]),
          randomValue(random, depth + 1),
        ]),
      );
  }
}

function randomBody(random: Random): Buffer {
  const members: [string, unknown][] = [
    ['model', pick(random, ['m1', 'org/name', 'a"b', 'ü', ''])],
    ['messages', randomValue(random, 0)],
  ];
  const optional: [string, unknown][] = [
    ['stream', pick(random, [true, false, null, 1, 'true'])],
    [
      'stream_options',
      pick(random, [
        {},
        null,
        { include_usage: true },
        { include_usage: false, x: [1] },
        { continuous_usage_stats: true },
        7,
      ]),
    ],
    ['max_tokens', pick(random, [1, 512, 1e3, -1, 'many', null])],
    ['max_completion_tokens', 9],
    ['max_output_tokens', pick(random, [3, '4'])],
    ['instructions', randomValue(random, 0)],
    ['n', pick(random, [1, 2.5])],
    ['tools', randomValue(random, 0)],
    ['input', randomValue(random, 0)],
    ['system', randomValue(random, 0)],
    ['other', randomValue(random, 0)],
  ];
  for (const member of optional)
    if (random() < 0.4) members.splice(between(random, 0, members.length), 0, member);
  const text = JSON.stringify(Object.fromEntries(members), undefined, pick(random, [0, 0, 2, '\t']));
  return Buffer.from(random() < 0.2 ? ` ${text}\r\n` : text);
}

/** Checks one body against JSON.parse and a slow walk over its text. */
function check(body: Buffer): void {
  const scan = scanBody(body);
  const text = body.toString();
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch {
    expect(scan.ok).toBe(false);
    if (scan.ok) return;
    const kinds = referenceDepth(text) > JSON_DEPTH_MAX ? ['invalid_json', 'too_deep'] : ['invalid_json'];
    expect(kinds).toContain(scan.problem.kind);
    return;
  }
  if (scan.ok) {
    expect(Buffer.from(text).equals(body), 'the body is UTF-8').toBe(true);
    checkFound(body, scan, text);
  } else checkRefusal(body, scan.problem.kind, text, parsed);
}

function checkFound(body: Buffer, scan: ScannedBody, text: string): void {
  const members = referenceMembers(text);
  const last = (key: string) => members.findLast((member) => member.key === key)?.value;
  const at = (range: { from: number; to: number } | undefined) =>
    range && body.toString('utf8', range.from, range.to);
  expect(members.filter((member) => member.key.toLowerCase() === 'model')).toHaveLength(1);
  expect(referenceDepth(text)).toBeLessThanOrEqual(JSON_DEPTH_MAX);
  expect(at(scan.modelRange)).toBe(last('model'));
  expect(scan.model).toBe(JSON.parse(last('model') as string));
  expect(at(scan.streamRange)).toBe(last('stream'));
  expect(scan.stream).toBe(last('stream') === 'true');
  expect(at(scan.streamOptions?.range)).toBe(last('stream_options'));
  for (const key of ['messages', 'prompt', 'input', 'tools', 'system', 'instructions'] as const)
    expect(at(scan[key])).toBe(last(key));
  expect(scan.maxTokens).toBe(numberIn(last('max_tokens')));
  expect(scan.maxCompletionTokens).toBe(numberIn(last('max_completion_tokens')));
  expect(scan.maxOutputTokens).toBe(numberIn(last('max_output_tokens')));
  expect(scan.n).toBe(numberIn(last('n')));
  checkSplice(body, scan, text);
}

/** A spliced body means what the original means, but for what was asked. */
function checkSplice(body: Buffer, scan: ScannedBody, text: string): void {
  const spliced = spliceBody(body, scan, { model: 'other "name" ü', includeUsage: true });
  const bytes = Buffer.concat(spliced.parts);
  expect(bytes.length).toBe(spliced.length);
  const wanted = JSON.parse(text) as Record<string, unknown>;
  wanted['model'] = 'other "name" ü';
  const options = wanted['stream_options'];
  if (options === undefined || options === null) wanted['stream_options'] = { include_usage: true };
  else if (typeof options === 'object' && !Array.isArray(options)) {
    const record = options as Record<string, unknown>;
    if ([undefined, null, false].includes(record['include_usage'] as undefined))
      record['include_usage'] = true;
  }
  expect(JSON.parse(bytes.toString())).toEqual(wanted);
}

function checkRefusal(body: Buffer, kind: string, text: string, parsed: unknown): void {
  const isObject = typeof parsed === 'object' && parsed !== null && !Array.isArray(parsed);
  const models = isObject
    ? referenceMembers(text).filter((member) => member.key.toLowerCase() === 'model')
    : [];
  const exact = models.filter((member) => member.key === 'model');
  const model = exact.length === 1 && exact[0] ? (JSON.parse(exact[0].value) as unknown) : undefined;
  switch (kind) {
    case 'invalid_json':
      return expect(isObject && Buffer.from(text).equals(body)).toBe(false);
    case 'too_deep':
      return expect(referenceDepth(text)).toBeGreaterThan(JSON_DEPTH_MAX);
    case 'missing_model':
      return expect(exact).toHaveLength(0);
    case 'duplicate_model':
      return expect(models.length).toBeGreaterThan(1);
    case 'invalid_model':
      return expect(typeof model !== 'string' || model === '').toBe(true);
    default:
      throw new Error(kind);
  }
}

function numberIn(value: string | undefined): number | undefined {
  const parsed: unknown = value === undefined ? undefined : JSON.parse(value);
  return typeof parsed === 'number' && (value as string).length <= 32 ? parsed : undefined;
}

describe('body scan against JSON.parse', () => {
  it.each(corpusOf('json-scan').map(({ name, bytes }) => [name, bytes] as const))(
    'corpus: %s',
    (_name, bytes) => {
      check(bytes);
    },
  );

  it(
    'whole bodies',
    fuzz(1500, (random) => check(inStrangeMemory(random, randomBody(random), '"\\{'))),
    fuzzTimeoutMs(),
  );

  it(
    'wounded bodies',
    fuzz(4000, (random) =>
      check(inStrangeMemory(random, mutate(random, randomBody(random), TOKENS), '"}\x01')),
    ),
    fuzzTimeoutMs(),
  );
});
