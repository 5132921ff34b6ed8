import { randomUUID } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, rename, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { Bigram } from './bigram.js';
import { type Bpe, trainBpe } from './bpe.js';
import { CORPUS } from './corpus.js';
import { constantTensor, encodeGguf, type GgufTensor, type GgufValue, halfTensor } from './gguf-writer.js';

/** File name of the default model; the number grows whenever its bytes change, so that an old file is not taken for a new one. */
export const TINY_MODEL_FILE_NAME = 'llmgw-tiny-1.gguf';

const SPECIAL_TOKENS = ['<|endoftext|>', '<|im_start|>', '<|im_end|>'] as const;
const MERGES = 370;
const LAYERS = 1;
const HEAD_SIZE = 32;
const FEED_FORWARD_SIZE = 32;
const CONTEXT_LENGTH = 8192;
/** A text goes on for about eight sentences. */
const END_PROBABILITY = 0.12;

/** ChatML, the form that most small models and tools know. */
const CHAT_TEMPLATE =
  "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}" +
  "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

/**
 * The default model as the bytes of a GGUF file: real for the engine, tiny for the disk, and generated, so that no binary has
 * to be kept anywhere.
 *
 * It is a table of "which token follows which" written as a llama-architecture network. Embeddings are one-hot, so the width
 * is the size of the vocabulary; the blocks' weights are zero, so they pass their input through while the engine still does
 * their work; the output matrix holds log P(next | current) / sqrt(width). The norm before it turns a one-hot row into
 * sqrt(width) times itself, so the logits come out as log P(next | current).
 */
export function buildTinyModel(): Buffer {
  const sentences = CORPUS.flatMap((paragraph) => paragraph.match(/[^.?]+[.?]/g) ?? []).map((text) =>
    text.trim(),
  );
  // Paragraphs teach what follows a full stop, sentences alone how a text begins (without a blank before it).
  const texts = [...CORPUS, ...sentences];
  const bpe = trainBpe(texts, MERGES);
  const tokens = [...bpe.tokens, ...SPECIAL_TOKENS];
  const idOf = (token: string) => tokens.indexOf(token);
  const bigram = new Bigram({
    vocabularySize: tokens.length,
    sequences: texts.map((text) => bpe.encode(text)),
    sentenceEnd: idOf('.'),
    endOfText: idOf('<|im_end|>'),
    endProbability: END_PROBABILITY,
  });
  return encodeGguf(metadata(bpe, tokens), tensors(bigram, tokens.length));
}

/** Writes the default model to `file`: whole or not at all, also when two do it at once. */
export async function writeTinyModel(file: string): Promise<void> {
  await mkdir(path.dirname(file), { recursive: true });
  const partial = `${file}.${randomUUID()}.partial`;
  try {
    await writeFile(partial, buildTinyModel());
    await rename(partial, file);
  } finally {
    await rm(partial, { force: true });
  }
}

/** The default model's path in `directory`; the file is written when it is not there. */
export async function ensureTinyModel(directory: string): Promise<string> {
  const file = path.join(directory, TINY_MODEL_FILE_NAME);
  if (!existsSync(file)) await writeTinyModel(file);
  return file;
}

function metadata(bpe: Bpe, tokens: readonly string[]): Map<string, GgufValue> {
  const uint32 = (value: number): GgufValue => ({ type: 'uint32', value });
  const string = (value: string): GgufValue => ({ type: 'string', value });
  const NORMAL = 1;
  const CONTROL = 3;
  const types = tokens.map((_, id) => (id < bpe.tokens.length ? NORMAL : CONTROL));
  return new Map<string, GgufValue>([
    ['general.architecture', string('llama')],
    ['general.name', string('llmgw tiny')],
    ['general.file_type', uint32(1)],
    ['llama.vocab_size', uint32(tokens.length)],
    ['llama.context_length', uint32(CONTEXT_LENGTH)],
    ['llama.embedding_length', uint32(tokens.length)],
    ['llama.block_count', uint32(LAYERS)],
    ['llama.feed_forward_length', uint32(FEED_FORWARD_SIZE)],
    ['llama.attention.head_count', uint32(1)],
    ['llama.attention.head_count_kv', uint32(1)],
    ['llama.attention.key_length', uint32(HEAD_SIZE)],
    ['llama.attention.value_length', uint32(HEAD_SIZE)],
    ['llama.attention.layer_norm_rms_epsilon', { type: 'float32', value: 1e-6 }],
    ['llama.rope.dimension_count', uint32(HEAD_SIZE)],
    ['tokenizer.ggml.model', string('gpt2')],
    ['tokenizer.ggml.pre', string('gpt-2')],
    ['tokenizer.ggml.tokens', { type: 'string[]', value: tokens }],
    ['tokenizer.ggml.token_type', { type: 'int32[]', value: types }],
    ['tokenizer.ggml.merges', { type: 'string[]', value: bpe.merges }],
    ['tokenizer.ggml.bos_token_id', uint32(tokens.indexOf('<|endoftext|>'))],
    ['tokenizer.ggml.eos_token_id', uint32(tokens.indexOf('<|im_end|>'))],
    ['tokenizer.ggml.add_bos_token', { type: 'bool', value: false }],
    ['tokenizer.chat_template', string(CHAT_TEMPLATE)],
  ]);
}

function tensors(bigram: Bigram, width: number): GgufTensor[] {
  const rows = Array.from({ length: width }, (_, current) => bigram.logProbabilities(current));
  const scale = 1 / Math.sqrt(width);
  const all = [
    halfTensor('token_embd.weight', [width, width], (column, row) => (column === row ? 1 : 0)),
    constantTensor('output_norm.weight', [width], 1),
    halfTensor('output.weight', [width, width], (current, next) => (rows[current]?.[next] ?? 0) * scale),
  ];
  for (let layer = 0; layer < LAYERS; layer++) all.push(...block(`blk.${layer}`, width));
  return all;
}

function block(name: string, width: number): GgufTensor[] {
  return [
    constantTensor(`${name}.attn_norm.weight`, [width], 1),
    halfTensor(`${name}.attn_q.weight`, [width, HEAD_SIZE]),
    halfTensor(`${name}.attn_k.weight`, [width, HEAD_SIZE]),
    halfTensor(`${name}.attn_v.weight`, [width, HEAD_SIZE]),
    halfTensor(`${name}.attn_output.weight`, [HEAD_SIZE, width]),
    constantTensor(`${name}.ffn_norm.weight`, [width], 1),
    halfTensor(`${name}.ffn_gate.weight`, [width, FEED_FORWARD_SIZE]),
    halfTensor(`${name}.ffn_up.weight`, [width, FEED_FORWARD_SIZE]),
    halfTensor(`${name}.ffn_down.weight`, [FEED_FORWARD_SIZE, width]),
  ];
}
