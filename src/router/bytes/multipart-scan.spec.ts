import { createHash } from 'node:crypto';
import { describe, expect, it } from 'vitest';

import { boundaryOf, scanForm, spliceForm, type FormProblem } from './multipart-scan.js';

const FILE = Buffer.from(Array.from({ length: 1 << 20 }, (_, i) => i & 255));

async function form(fields: [string, string | Blob][]): Promise<{ body: Buffer; type: string }> {
  const data = new FormData();
  for (const [name, value] of fields) data.append(name, value);
  const response = new Response(data);
  return {
    body: Buffer.from(await response.arrayBuffer()),
    type: response.headers.get('content-type') ?? '',
  };
}

describe('boundaryOf', () => {
  it.each([
    ['multipart/form-data; boundary=abc', 'abc'],
    ['multipart/form-data; boundary="a b;c"', 'a b;c'],
    ['multipart/form-data;charset=utf-8;BOUNDARY=abc', 'abc'],
    ['multipart/form-data; boundary="a\\"b"', 'a"b'],
    ['multipart/form-data', undefined],
    ['multipart/form-data; boundary=', undefined],
    ['multipart/form-data; boundary=a; boundary=b', undefined],
    ['multipart/form-data; boundary="ends with a blank "', undefined],
    [`multipart/form-data; boundary=${'x'.repeat(201)}`, undefined],
    ['multipart/form-data; x="; boundary=inside"', undefined],
  ])('%s', (contentType, boundary) => {
    expect(boundaryOf(contentType)).toBe(boundary);
  });
});

describe('scanForm', () => {
  it.each([
    [
      'first',
      (file: Blob) =>
        [
          ['model', 'whisper-1'],
          ['stream', 'true'],
          ['file', file],
        ] as [string, string | Blob][],
    ],
    [
      'last',
      (file: Blob) =>
        [
          ['file', file],
          ['stream', 'true'],
          ['model', 'whisper-1'],
        ] as [string, string | Blob][],
    ],
  ])('finds the model %s, and changes nothing but it', async (_name, fields) => {
    const { body, type } = await form(fields(new Blob([FILE])));
    const scan = scanForm(body, type);
    if (!scan.ok) throw new Error(JSON.stringify(scan.problem));
    expect(scan).toMatchObject({ model: 'whisper-1', stream: true });
    expect(spliceForm(body, scan, 'whisper-1').parts[0]).toBe(body);

    const spliced = spliceForm(body, scan, '/models/whisper');
    const bytes = Buffer.concat(spliced.parts);
    expect(bytes.length).toBe(spliced.length);
    const read = await new Response(Uint8Array.from(bytes), { headers: { 'content-type': type } }).formData();
    expect(read.get('model')).toBe('/models/whisper');
    const file = Buffer.from(await (read.get('file') as File).arrayBuffer());
    expect(createHash('sha256').update(file).digest('hex')).toBe(
      createHash('sha256').update(FILE).digest('hex'),
    );
  });

  const part = (headers: string, value = 'm1') => `--B\r\n${headers}\r\n\r\n${value}\r\n`;
  const field = 'Content-Disposition: form-data; name="model"';
  it.each<[string, string, Partial<FormProblem>]>([
    ['no parts', '{}', { kind: 'invalid_multipart', detail: 'no_parts' }],
    ['no model', `${part('Content-Disposition: form-data; name="x"')}--B--`, { kind: 'missing_model' }],
    ['only a file called model', `${part(`${field}; filename="m"`)}--B--`, { kind: 'missing_model' }],
    ['two models', `${part(field)}${part(field)}--B--`, { kind: 'duplicate_model' }],
    ['an empty model', `${part(field, '')}--B--`, { kind: 'invalid_model', detail: 'empty' }],
    [
      'an endless model',
      `${part(field, 'm'.repeat(2000))}--B--`,
      { kind: 'invalid_model', detail: 'too_long' },
    ],
    [
      'an encoded model',
      `${part(`${field}\r\nContent-Transfer-Encoding: base64`)}--B--`,
      { kind: 'invalid_model', detail: 'encoded' },
    ],
    ['a missing end', part(field), { kind: 'invalid_multipart', detail: 'unterminated' }],
    [
      'a near delimiter',
      `${part(field, 'x\r\n--Bx')}--B--`,
      { kind: 'invalid_multipart', detail: 'ambiguous_delimiter' },
    ],
    [
      'a disguised name',
      `${part('Content-Disposition: form-data; name="mod\\el"')}--B--`,
      { kind: 'invalid_multipart', detail: 'bad_part_headers' },
    ],
    [
      'endless headers',
      `${part(`${field}\r\nX: ${'y'.repeat(9000)}`)}--B--`,
      { kind: 'invalid_multipart', detail: 'part_headers_too_large' },
    ],
    [
      'too many parts',
      `${part('Content-Disposition: form-data; name="x"').repeat(129)}--B--`,
      { kind: 'invalid_multipart', detail: 'too_many_parts' },
    ],
  ])('refuses %s', (_name, body, problem) => {
    expect(scanForm(Buffer.from(body), 'multipart/form-data; boundary=B')).toMatchObject({
      ok: false,
      problem,
    });
  });

  it('takes no alias target that could end the part', () => {
    const body = Buffer.from(`${part(field)}--B--`);
    const scan = scanForm(body, 'multipart/form-data; boundary=B');
    if (!scan.ok) throw new Error('refused');
    expect(() => spliceForm(body, scan, 'a\r\n--B--')).toThrow('line break');
  });
});
