import { createHash } from 'node:crypto';
import { seededRandom } from '../../shared/random.js';
import { arrayOf, type JsonObject, numberOf, objectOf, stringOf, stringsOf } from '../json-fields.js';
import type { EngineError } from './dialect.js';
import { renderMessages } from './generation-request.js';
import { hashBytes } from './hashing.js';
import { BYTES_PER_TOKEN, tokenCount } from './prefix-cache.js';

/** What a route without generation answers: JSON, plain text, bytes, or a refusal. */
export type SideAnswer =
  | { readonly json: unknown }
  | { readonly text: string }
  | { readonly bytes: Buffer; readonly contentType: string }
  | { readonly error: EngineError };

export interface SideContext {
  readonly seed: number;
  readonly model: string;
  readonly embeddingSize: number;
  readonly maxModelLen: number;
}

type SideRoute = (body: JsonObject, context: SideContext) => SideAnswer;

/** Routes that answer at once from a JSON body, by path. */
export const SIDE_ROUTES: ReadonlyMap<string, SideRoute> = new Map<string, SideRoute>([
  ['/v1/embeddings', embeddings],
  ['/v1/rerank', rerank],
  ['/rerank', rerank],
  ['/v1/score', score],
  ['/score', score],
  ['/v1/classify', classify],
  ['/classify', classify],
  ['/v1/moderations', moderations],
  ['/v1/audio/speech', speech],
  ['/v1/images/generations', images],
  ['/tokenize', tokenize],
  ['/v1/tokenize', tokenize],
  ['/detokenize', detokenize],
  ['/v1/detokenize', detokenize],
  ['/v1/messages/count_tokens', countTokens],
]);

function missing(field: string): SideAnswer {
  return { error: { status: 400, message: `field required: ${field}`, param: field } };
}

function embeddings(body: JsonObject, { seed, model, embeddingSize }: SideContext): SideAnswer {
  const inputs = embeddingInputs(body['input']);
  if (inputs.length === 0) return missing('input');
  const size = numberOf(body['dimensions']) ?? embeddingSize;
  const base64 = body['encoding_format'] === 'base64';
  const data = inputs.map((text, index) => {
    const vector = embed(text, seed, size);
    return { object: 'embedding', index, embedding: base64 ? toBase64(vector) : vector };
  });
  const tokens = inputs.reduce((sum, text) => sum + tokenCount(Buffer.byteLength(text)), 0);
  return { json: { object: 'list', data, model, usage: { prompt_tokens: tokens, total_tokens: tokens } } };
}

/** A text, several texts, one list of token ids or several. */
function embeddingInputs(input: unknown): string[] {
  if (typeof input === 'string') return [input];
  const list = arrayOf(input);
  if (list.length === 0) return [];
  if (typeof list[0] === 'number') return [list.join(' ')];
  return list.map((item) => (Array.isArray(item) ? item.join(' ') : (stringOf(item) ?? '')));
}

/** A unit vector that depends on nothing but text, seed and size. */
function embed(text: string, seed: number, size: number): number[] {
  const bytes = Buffer.from(text);
  const random = seededRandom(hashBytes(bytes, 0, bytes.length, seed) % 0x1_0000_0000);
  const raw = Array.from({ length: size }, () => random() * 2 - 1);
  const length = Math.hypot(...raw) || 1;
  return raw.map((value) => Math.fround(value / length));
}

function toBase64(vector: readonly number[]): string {
  const bytes = Buffer.alloc(vector.length * 4);
  for (const [index, value] of vector.entries()) bytes.writeFloatLE(value, index * 4);
  return bytes.toString('base64');
}

function relevance(query: string, document: string, seed: number): number {
  const bytes = Buffer.from(`${query}\n${document}`);
  return (hashBytes(bytes, 0, bytes.length, seed) % 10_000) / 10_000;
}

function rerank(body: JsonObject, { seed, model }: SideContext): SideAnswer {
  const query = stringOf(body['query']);
  if (query === undefined) return missing('query');
  const documents = arrayOf(body['documents']).map(
    (item) => stringOf(item) ?? stringOf(objectOf(item)['text']) ?? '',
  );
  const results = documents
    .map((text, index) => ({ index, document: { text }, relevance_score: relevance(query, text, seed) }))
    .sort((a, b) => b.relevance_score - a.relevance_score || a.index - b.index)
    .slice(0, numberOf(body['top_n']) ?? documents.length);
  return { json: { id: 'rerank-sim', model, usage: { total_tokens: documents.length }, results } };
}

function score(body: JsonObject, { seed, model }: SideContext): SideAnswer {
  const [first, ...others] = stringsOf(body['text_1']);
  if (first === undefined) return missing('text_1');
  const firsts = [first, ...others];
  const data = stringsOf(body['text_2']).map((text, index) => ({
    index,
    object: 'score',
    score: relevance(firsts[index] ?? first, text, seed),
  }));
  return { json: { id: 'score-sim', object: 'list', model, data, usage: { total_tokens: data.length } } };
}

function classify(body: JsonObject, { seed, model }: SideContext): SideAnswer {
  const inputs = stringsOf(body['input']);
  if (inputs.length === 0) return missing('input');
  const data = inputs.map((text, index) => {
    const yes = relevance('class', text, seed);
    return { index, label: yes >= 0.5 ? 'LABEL_1' : 'LABEL_0', probs: [1 - yes, yes], num_classes: 2 };
  });
  return { json: { id: 'classify-sim', object: 'list', model, data } };
}

function moderations(body: JsonObject, { seed, model }: SideContext): SideAnswer {
  const inputs = stringsOf(body['input']);
  if (inputs.length === 0) return missing('input');
  const results = inputs.map((text) => {
    const violence = relevance('violence', text, seed);
    return {
      flagged: violence > 0.9,
      categories: { violence: violence > 0.9 },
      category_scores: { violence },
    };
  });
  return { json: { id: 'modr-sim', model, results } };
}

/** Bytes that a test can recognise: the text's hash, over and over, about as long as speech would be. */
function speech(body: JsonObject): SideAnswer {
  const input = stringOf(body['input']);
  if (input === undefined) return missing('input');
  const hash = createHash('sha256').update(input).digest();
  const bytes = Buffer.alloc(hash.length * (input.length + 1), hash);
  return { bytes, contentType: 'audio/mpeg' };
}

function images(body: JsonObject): SideAnswer {
  const prompt = stringOf(body['prompt']);
  if (prompt === undefined) return missing('prompt');
  const image = createHash('sha256').update(prompt).digest('base64');
  return { json: { created: 0, data: [{ b64_json: image }] } };
}

/** Tokens are four bytes of text each, written as one number, so that they can be turned back. */
function tokenize(body: JsonObject, { maxModelLen }: SideContext): SideAnswer {
  const rendered = renderMessages(body['messages'], undefined, body['tools'])?.text;
  const text = rendered ?? stringOf(body['prompt']) ?? stringOf(body['content']);
  if (text === undefined) return missing('prompt');
  const bytes = Buffer.from(text);
  const tokens = Array.from({ length: tokenCount(bytes.length) }, (_, index) => {
    const start = index * BYTES_PER_TOKEN;
    return bytes.readUIntLE(start, Math.min(BYTES_PER_TOKEN, bytes.length - start));
  });
  return { json: { count: tokens.length, max_model_len: maxModelLen, tokens, token_strs: null } };
}

function detokenize(body: JsonObject): SideAnswer {
  const tokens = body['tokens'];
  if (!Array.isArray(tokens)) return missing('tokens');
  const bytes = Buffer.alloc(tokens.length * BYTES_PER_TOKEN);
  for (const [index, token] of tokens.entries()) {
    bytes.writeUInt32LE((numberOf(token) ?? 0) >>> 0, index * BYTES_PER_TOKEN);
  }
  // The last token may stand for fewer than four bytes; text holds no zero bytes, so what is zero was padding.
  const text = bytes.toString().replace(/\0+$/, '');
  return { json: { prompt: text, content: text } };
}

function countTokens(body: JsonObject): SideAnswer {
  const text = renderMessages(body['messages'], body['system'], body['tools'])?.text;
  if (text === undefined) return missing('messages');
  return { json: { input_tokens: tokenCount(Buffer.byteLength(text)) } };
}

/**
 * `/v1/audio/transcriptions`: answers the SHA-256 of the `file` part, so that a test sees whether it came through whole.
 * Returns the model named in the form beside the answer.
 */
export function transcribe(
  contentType: string,
  body: Buffer,
): { readonly answer: SideAnswer; readonly model: string | undefined } {
  const boundary = /boundary=(?:"([^"]+)"|([^;\s]+))/i.exec(contentType);
  const mark = boundary?.[1] ?? boundary?.[2];
  if (mark === undefined) {
    return { answer: { error: { status: 400, message: 'expected multipart/form-data' } }, model: undefined };
  }
  const parts = readParts(body, mark);
  const field = (name: string) => parts.find((part) => part.name === name)?.bytes;
  const file = field('file');
  const model = field('model')?.toString();
  if (file === undefined) return { answer: missing('file'), model };
  const text = createHash('sha256').update(file).digest('hex');
  const plain = field('response_format')?.toString() === 'text';
  return { answer: plain ? { text: `${text}\n` } : { json: { text, duration: 1, language: 'en' } }, model };
}

function readParts(body: Buffer, boundary: string): { name: string; bytes: Buffer }[] {
  const mark = Buffer.from(`--${boundary}`);
  const parts: { name: string; bytes: Buffer }[] = [];
  let start = body.indexOf(mark);
  while (start >= 0) {
    const next = body.indexOf(mark, start + mark.length);
    if (next < 0) break;
    const part = body.subarray(start + mark.length + 2, next - 2);
    const headEnd = part.indexOf('\r\n\r\n');
    const name = /[; ]name="([^"]*)"/.exec(part.toString('latin1', 0, Math.max(0, headEnd)))?.[1];
    if (name !== undefined && headEnd >= 0) parts.push({ name, bytes: part.subarray(headEnd + 4) });
    start = next;
  }
  return parts;
}
