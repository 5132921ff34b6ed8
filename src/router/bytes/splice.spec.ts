import { describe, expect, it } from 'vitest';

import { scanBody } from './json-scan.js';
import { applyEdits, memberCuts, spliceBody, type BodyChanges } from './splice.js';

function splice(text: string, changes: BodyChanges): string {
  const body = Buffer.from(text);
  const scan = scanBody(body);
  if (!scan.ok) throw new Error(JSON.stringify(scan.problem));
  const { parts, length } = spliceBody(body, scan, changes);
  const bytes = Buffer.concat(parts);
  expect(bytes.length).toBe(length);
  return bytes.toString();
}

describe('spliceBody', () => {
  it('hands on the same buffer when nothing changes', () => {
    const body = Buffer.from('{"model":"m","stream_options":{"include_usage":true}}');
    const scan = scanBody(body);
    if (!scan.ok) throw new Error('refused');
    expect(spliceBody(body, scan, { model: 'm', includeUsage: true }).parts).toEqual([body]);
    expect(spliceBody(body, scan, {}).parts[0]).toBe(body);
  });

  it('puts an alias target in place, escaped', () => {
    expect(splice('{ "a" : 1 , "model" : "chat", "z":"ü" }', { model: '/models/"q"-7b' })).toBe(
      '{ "a" : 1 , "model" : "/models/\\"q\\"-7b", "z":"ü" }',
    );
  });

  it.each([
    ['no options', '{ "model":"m"}', '{"stream_options":{"include_usage":true}, "model":"m"}'],
    [
      'null',
      '{"model":"m","stream_options": null}',
      '{"model":"m","stream_options": {"include_usage":true}}',
    ],
    [
      'an empty object',
      '{"model":"m","stream_options":{ }}',
      '{"model":"m","stream_options":{"include_usage":true }}',
    ],
    [
      'false',
      '{"model":"m","stream_options":{"x":[1], "include_usage" : false}}',
      '{"model":"m","stream_options":{"x":[1], "include_usage" : true}}',
    ],
    [
      'null inside',
      '{"stream_options":{"include_usage":null},"model":"m"}',
      '{"stream_options":{"include_usage":true},"model":"m"}',
    ],
    [
      'other members',
      '{"stream_options":{"include_obfuscation":false},"model":"m"}',
      '{"stream_options":{"include_usage":true,"include_obfuscation":false},"model":"m"}',
    ],
    [
      'true already',
      '{"stream_options":{"include_usage":true},"model":"m"}',
      '{"stream_options":{"include_usage":true},"model":"m"}',
    ],
    [
      "a wrong type, the engine's to refuse",
      '{"stream_options":7,"model":"m"}',
      '{"stream_options":7,"model":"m"}',
    ],
    [
      'a wrong type inside',
      '{"stream_options":{"include_usage":"no"},"model":"m"}',
      '{"stream_options":{"include_usage":"no"},"model":"m"}',
    ],
    [
      'doubled options, of which the last counts',
      '{"stream_options":{"include_usage":true},"stream_options":{"a":1},"model":"m"}',
      '{"stream_options":{"include_usage":true},"stream_options":{"include_usage":true,"a":1},"model":"m"}',
    ],
  ])('asks for usage: %s', (_name, before, after) => {
    expect(splice(before, { includeUsage: true })).toBe(after);
  });

  it('does both at once, in whatever order they stand', () => {
    expect(splice('{"stream_options":{},"model":"a"}', { model: 'b', includeUsage: true })).toBe(
      '{"stream_options":{"include_usage":true},"model":"b"}',
    );
  });

  it('copies nothing of a large body', () => {
    const body = Buffer.from(`{"messages":"${'x'.repeat(1e6)}","model":"a"}`);
    const scan = scanBody(body);
    if (!scan.ok) throw new Error('refused');
    const { parts } = spliceBody(body, scan, { model: 'b' });
    expect(parts.map((part) => part.buffer === body.buffer)).toEqual([true, false, true]);
  });
});

describe('applyEdits', () => {
  it('refuses edits that overlap', () => {
    const bytes = Buffer.from('x');
    const edits = [
      { range: { from: 0, to: 3 }, bytes },
      { range: { from: 2, to: 4 }, bytes },
    ];
    expect(() => applyEdits(Buffer.from('abcdef'), edits)).toThrow('overlap');
  });
});

describe('memberCuts', () => {
  it.each([
    ['{"a":1,"usage":null}', '{"a":1}'],
    ['{"usage":null,"a":1}', '{"a":1}'],
    ['{"a":1 , "usage" : {"x":[]} , "b":2}', '{"a":1 , "b":2}'],
    ['{"usage":1}', '{}'],
    ['{ "usage":1, "usage":2 }', '{  }'],
    ['{"a":1,"usage":1,"usage":2}', '{"a":1}'],
    ['{"usage":1,"a":{"usage":2},"usage":3}', '{"a":{"usage":2}}'],
    ['{"a":"usage"}', '{"a":"usage"}'],
    ['{"usage":1', '{"usage":1'],
    ['{"usage":1}x', '{"usage":1}x'],
    ['[1]', '[1]'],
    ['', ''],
  ])('%s', (before, after) => {
    const json = Buffer.from(before);
    const edits = memberCuts(json, 'usage').map((range) => ({ range, bytes: Buffer.alloc(0) }));
    expect(Buffer.concat(applyEdits(json, edits).parts).toString()).toBe(after);
  });
});
