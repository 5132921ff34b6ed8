import { describe, expect, it } from 'vitest';

import { MODEL_NAME_MAX_BYTES, scanBody, type BodyProblem, type ScannedBody } from './json-scan.js';
import { CONTROL_SEARCH_MAX_BYTES } from './json-walker.js';

function scan(text: string): ScannedBody {
  const result = scanBody(Buffer.from(text));
  if (!result.ok) throw new Error(JSON.stringify(result.problem));
  return result;
}

function problem(text: string | Buffer): BodyProblem {
  const result = scanBody(Buffer.from(text as string));
  if (result.ok) throw new Error('accepted');
  return result.problem;
}

describe('scanBody', () => {
  it('finds what routing needs', () => {
    const text =
      '{ "model": "org/m-7b", "messages": [{"role":"user","content":"say \\"model\\": x"}], "stream": true, "n": 2,' +
      ' "stream_options": {"include_usage": false, "continuous_usage_stats": true}, "max_tokens": 512, "max_completion_tokens": 1e3, "tools": [] }';
    const found = scan(text);
    const at = (range: { from: number; to: number } | undefined) => range && text.slice(range.from, range.to);
    expect(found).toMatchObject({
      model: 'org/m-7b',
      stream: true,
      n: 2,
      maxTokens: 512,
      maxCompletionTokens: 1000,
    });
    expect(at(found.modelRange)).toBe('"org/m-7b"');
    expect(at(found.messages)).toBe('[{"role":"user","content":"say \\"model\\": x"}]');
    expect(at(found.tools)).toBe('[]');
    expect(found.streamOptions).toMatchObject({
      kind: 'object',
      empty: false,
      includeUsage: 'false',
      continuousUsageStats: true,
    });
    expect(at(found.streamOptions?.includeUsageRange)).toBe('false');
    expect(found.prompt).toBeUndefined();
    expect([text.slice(0, found.afterOpen), text.slice(found.beforeClose)]).toEqual(['{', '}']);
  });

  it('reads stream_options also where longer strings follow', () => {
    // The options are looked at last; a walker that had already passed them took the closing quote of the key for text.
    const long = 'a member far longer than any string that is read byte by byte';
    const text = `{"stream_options":{"${long}":"${long}","include_usage":true},"x":"${long}","model":"m"}`;
    expect(scan(text).streamOptions).toMatchObject({ includeUsage: 'true', empty: false });
  });

  it('decodes escaped keys and values, as every engine does', () => {
    expect(scan('{"mod\\u0065l":"a\\/b\\u00fc","\\u0073tream":true}')).toMatchObject({
      model: 'a/bü',
      stream: true,
    });
  });

  it.each([
    ['1', false],
    ['"true"', false],
    ['null', false],
    ['true', true],
  ])('takes only a literal true for stream: %s', (value, stream) => {
    expect(scan(`{"model":"m","stream":${value}}`).stream).toBe(stream);
  });

  it.each<[string, string | Buffer, BodyProblem]>([
    ['nothing', '', { kind: 'invalid_json', at: 0, detail: 'empty' }],
    ['only blanks', ' \n', { kind: 'invalid_json', at: 2, detail: 'empty' }],
    ['a byte order mark', '\ufeff{"model":"m"}', { kind: 'invalid_json', at: 0, detail: 'byte_order_mark' }],
    ['a list', '[{"model":"m"}]', { kind: 'invalid_json', at: 15, detail: 'not_an_object' }],
    ['a broken list', '[1', { kind: 'invalid_json', at: 2, detail: 'syntax' }],
    ['a cut body', '{"model":"m","x":"abc', { kind: 'invalid_json', at: 21, detail: 'syntax' }],
    ['a trailing comma', '{"model":"m",}', { kind: 'invalid_json', at: 13, detail: 'syntax' }],
    ['two documents', '{"model":"m"}{}', { kind: 'invalid_json', at: 13, detail: 'syntax' }],
    [
      'a raw line break in a string',
      '{"model":"m","x":"a\nb"}',
      { kind: 'invalid_json', at: 19, detail: 'syntax' },
    ],
    [
      'bytes that are not UTF-8',
      Buffer.from([...Buffer.from('{"model":"'), 0xff, ...Buffer.from('"}')]),
      { kind: 'invalid_json', at: 0, detail: 'not_utf8' },
    ],
    ['no model', '{"messages":[]}', { kind: 'missing_model' }],
    ['a model of another case only', '{"Model":"m"}', { kind: 'missing_model' }],
    ['model null', '{"model":null}', { kind: 'invalid_model', at: 9, detail: 'not_a_string' }],
    ['model 7', '{"model": 7}', { kind: 'invalid_model', at: 10, detail: 'not_a_string' }],
    ['an empty model', '{"model":""}', { kind: 'invalid_model', at: 9, detail: 'empty' }],
    [
      'an endless model',
      `{"model":"${'m'.repeat(MODEL_NAME_MAX_BYTES + 1)}"}`,
      { kind: 'invalid_model', at: 9, detail: 'too_long' },
    ],
    ['two models', '{"model":"a","model":"b"}', { kind: 'duplicate_model', at: 21 }],
    ['the same model twice', '{"model":"a","model":"a"}', { kind: 'duplicate_model', at: 21 }],
    ['two models, one escaped', '{"model":"a","\\u006dodel":"b"}', { kind: 'duplicate_model', at: 26 }],
    ['two models, one in capitals', '{"MODEL":"b","model":"a"}', { kind: 'duplicate_model', at: 9 }],
  ])('refuses %s', (_name, text, expected) => {
    expect(problem(text)).toEqual(expected);
  });

  it('stops at depth, in no time and without recursion', () => {
    // JSON.parse takes half a second for this, and structuredClone overflows the stack.
    expect(problem(`{"model":"m","x":${'['.repeat(1_000_000)}`)).toEqual({ kind: 'too_deep', at: 17 + 127 });
    expect(problem(`{"x":${'{"a":'.repeat(200)}1${'}'.repeat(200)},"model":"m"}`).kind).toBe('too_deep');
    const deep = `${'['.repeat(127)}${']'.repeat(127)}`;
    expect(scan(`{"model":"m","a":${deep},"b":${deep}}`).model).toBe('m');
  });

  it('leaves tool schemas with any property names alone', () => {
    const text =
      '{"model":"m1","tools":[{"function":{"parameters":{"properties":{"__proto__":{"type":"string"},"constructor":{"prototype":{}}}}}}],"__proto__":{"type":"x"}}';
    expect(scan(text).model).toBe('m1');
    expect(({} as { type?: unknown }).type).toBeUndefined();
  });

  it('finds raw line breaks and tabs however long the body, other controls in its beginning', () => {
    const long = 'x'.repeat(4 * CONTROL_SEARCH_MAX_BYTES);
    for (const control of ['\n', '\r', '\t'])
      expect(problem(`{"model":"m","x":"${long}${control}${long}"}`).kind).toBe('invalid_json');
    expect(problem(`{"model":"m","x":"${'x'.repeat(1000)}\u0001"}`).kind).toBe('invalid_json');
    // The documented gap: see CONTROL_SEARCH_MAX_BYTES.
    expect(scan(`{"model":"m","x":"${long}\u0001${long}"}`).model).toBe('m');
    // Line breaks between members are no fault, also after long strings.
    expect(scan(`{"model":"m",\n\t"x":"${long}",\r\n\t"y":"${long}"\n}`).model).toBe('m');
  });

  it('tells pictures from long texts', () => {
    const picture = Buffer.from(
      Uint32Array.from({ length: 20_000 }, (_, i) => Math.imul(i + 1, 0x9e3779b1)).buffer,
    );
    const url = `data:image/png;base64,${picture.toString('base64')}`;
    const words = 'words of a long text, '.repeat(4_000);
    const found = scan(
      JSON.stringify({
        model: 'm',
        messages: [
          { role: 'user', content: [{ text: words }, { image_url: { url } }, { audio: url.slice(22) }] },
        ],
      }),
    );
    expect(found.blobs).toBe(2);
    expect(found.blobBytes).toBe(2 * url.length - 22 + 4);
    for (const text of [
      'x'.repeat(50_000),
      'word'.repeat(10_000),
      'Ünïcödé'.repeat(9_000),
      `${url} what is this?`,
    ]) {
      expect(scan(JSON.stringify({ model: 'm', messages: [text] }))).toMatchObject({
        blobs: 0,
        blobBytes: 0,
      });
    }
  });
});
