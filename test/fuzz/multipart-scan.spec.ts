import { describe, expect, it } from 'vitest';

import { scanForm, spliceForm } from '../../src/router/bytes/multipart-scan.js';
import type { Random } from '../../src/shared/random.js';
import { between, corpusOf, fuzz, fuzzTimeoutMs, mutate, pick } from './fuzz.js';

const BOUNDARY = 'X-boundary-7';
const TOKENS = [
  '\r\n', '\n', '\r', '--', `--${BOUNDARY}`, `\r\n--${BOUNDARY}\r\n`, `\r\n--${BOUNDARY}--`, `\r\n--${BOUNDARY}x\r\n`, ' ', ';', '"', '\\', '=',
  'Content-Disposition: form-data; name="model"\r\n\r\nother', 'content-disposition:form-data;name=model', '; filename="x"', '; name*=utf-8\'\'model',
  '; name="other"', 'model', 'Content-Transfer-Encoding: base64\r\n', '\0', 'é',
]; // prettier-ignore

interface Part {
  readonly headers: string;
  readonly value: Buffer;
}

function randomPart(random: Random): Part {
  const name = pick(random, ['file', 'language', 'stream', 'prompt', 'MODEL', 'model2']);
  const quoted = random() < 0.8 ? `"${name}"` : name;
  const file =
    random() < 0.4
      ? `; filename=${pick(random, ['"a.wav"', 'a.wav', '"model"', '"C:\\\\x.wav"', '"ü.wav"'])}`
      : '';
  const type = file === '' ? '' : '\r\nContent-Type: audio/wav';
  const disposition = pick(random, ['Content-Disposition', 'content-disposition', 'CONTENT-DISPOSITION']);
  const value = random() < 0.5 ? Buffer.from(pick(random, ['', 'true', 'en', '--', '\r\n', '\r\n--X-bound']))
    : Buffer.from(Array.from({ length: between(random, 0, 300) }, () => between(random, 0, 255))); // prettier-ignore
  return { headers: `${disposition}: form-data; name=${quoted}${file}${type}`, value };
}

function randomForm(random: Random): { body: Buffer; model: string } {
  const model = pick(random, ['m1', 'org/whisper-large', 'ü', 'a"b\\c', ' padded ']);
  const parts = Array.from({ length: between(random, 0, 4) }, () => randomPart(random));
  const name = pick(random, ['name="model"', 'name=model', 'Name = "model"']);
  parts.splice(between(random, 0, parts.length), 0, {
    headers: `Content-Disposition: form-data; ${name}`,
    value: Buffer.from(model),
  });
  const pieces: Buffer[] = [Buffer.from(random() < 0.1 ? 'a preamble\r\n' : '')];
  for (const part of parts) {
    pieces.push(
      Buffer.from(`--${BOUNDARY}${random() < 0.1 ? ' \t' : ''}\r\n${part.headers}\r\n\r\n`),
      part.value,
      Buffer.from('\r\n'),
    );
  }
  pieces.push(Buffer.from(`--${BOUNDARY}--${pick(random, ['\r\n', '', '\r\nan epilogue'])}`));
  return { body: Buffer.concat(pieces), model };
}

/** Every field called model that a generous reader could see, by splitting the text. */
function generousModels(body: Buffer): string[] {
  const pieces = `\r\n${body.toString('latin1')}`.split(`\r\n--${BOUNDARY}`).slice(1);
  const end = pieces.findIndex((piece) => piece.startsWith('--'));
  return pieces.slice(0, end < 0 ? undefined : end).flatMap((piece) => {
    const [, headers, value] = /^(.*?)\r?\n\r?\n(.*)$/s.exec(piece) ?? [];
    const isModel =
      /^content-disposition\s*:.*;\s*name\s*=\s*"?(model)"?\s*(?:;|$)/im.exec(headers ?? '')?.[1] === 'model';
    return isModel && !/;\s*filename/i.test(headers ?? '')
      ? [Buffer.from(value ?? '', 'latin1').toString()]
      : [];
  });
}

/** What Node's own form reader sees; undefined when it refuses. */
async function nodesModels(body: Uint8Array, contentType: string): Promise<string[] | undefined> {
  try {
    const form = await new Response(Uint8Array.from(body), {
      headers: { 'content-type': contentType },
    }).formData();
    return form.getAll('model').filter((value) => typeof value === 'string');
  } catch {
    return undefined;
  }
}

async function check(body: Buffer): Promise<boolean> {
  const contentType = `multipart/form-data; boundary=${BOUNDARY}`;
  const scan = scanForm(body, contentType);
  if (!scan.ok) return false;
  expect(body.toString('utf8', scan.modelRange.from, scan.modelRange.to)).toBe(scan.model);
  expect(generousModels(body)).toEqual([scan.model]);
  const nodes = await nodesModels(body, contentType);
  if (nodes !== undefined) expect(nodes).toEqual([scan.model]);
  const spliced = spliceForm(body, scan, 'other/name');
  const again = scanForm(Buffer.concat(spliced.parts), contentType);
  expect(again).toMatchObject({ ok: true, model: 'other/name', stream: scan.stream });
  expect(spliced.length).toBe(body.length - Buffer.byteLength(scan.model) + 10);
  return true;
}

describe('form scan against slow readers', () => {
  it.each(corpusOf('multipart-scan').map(({ name, bytes }) => [name, bytes] as const))(
    'corpus: %s',
    async (name, bytes) => {
      expect(await check(bytes)).toBe(name.startsWith('ok-'));
    },
  );

  it('finds the model of every well-formed form', fuzz(500, async (random) => {
    const { body, model } = randomForm(random);
    const scan = scanForm(body, pick(random, [`multipart/form-data; boundary="${BOUNDARY}"`, `multipart/form-data;charset=x; Boundary=${BOUNDARY}`]));
    // A value that holds the delimiter by chance is another form.
    if (generousModels(body).length === 1 && !body.includes(`\r\n--${BOUNDARY}\r\n\r\n--`)) expect(scan).toMatchObject({ ok: true, model });
    await check(body);
  }), fuzzTimeoutMs()); // prettier-ignore

  it('never finds another model than slower readers do', async () => {
    const seen = { forms: 0, accepted: 0 };
    await fuzz(1500, async (random) => {
      seen.forms++;
      if (await check(mutate(random, randomForm(random).body, TOKENS))) seen.accepted++;
    })();
    expect(seen.accepted / seen.forms).toBeGreaterThan(0.1);
  }, fuzzTimeoutMs()); // prettier-ignore
});
