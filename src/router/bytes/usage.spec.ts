import { describe, expect, it } from 'vitest';

import { mergeUsage, USAGE_TAIL_MAX_BYTES, usageOf, usageOfAnswer, UsageTail, type Usage } from './usage.js';

function counts(promptTokens?: number, completionTokens?: number, cachedTokens?: number): Usage {
  return { promptTokens, completionTokens, cachedTokens };
}

describe('usageOf', () => {
  it.each<[string, unknown, Usage | undefined]>([
    ['OpenAI', { usage: { prompt_tokens: 7, completion_tokens: 3, total_tokens: 10 } }, counts(7, 3)],
    [
      'with cached tokens',
      {
        choices: [],
        usage: { prompt_tokens: 7, completion_tokens: 0, prompt_tokens_details: { cached_tokens: 4 } },
      },
      counts(7, 0, 4),
    ],
    [
      'vLLM, details null',
      { usage: { prompt_tokens: 7, completion_tokens: 1, prompt_tokens_details: null } },
      counts(7, 1),
    ],
    ['embeddings, no completion', { data: [], usage: { prompt_tokens: 7, total_tokens: 7 } }, counts(7)],
    [
      'Anthropic start',
      {
        type: 'message_start',
        message: {
          usage: {
            input_tokens: 5,
            cache_read_input_tokens: 10,
            cache_creation_input_tokens: 2,
            output_tokens: 1,
          },
        },
      },
      counts(17, 1, 10),
    ],
    ['Anthropic end', { type: 'message_delta', usage: { output_tokens: 9 } }, counts(undefined, 9)],
    [
      'Responses',
      {
        type: 'response.completed',
        response: {
          usage: { input_tokens: 15, input_tokens_details: { cached_tokens: 10 }, output_tokens: 2 },
        },
      },
      counts(15, 2, 10),
    ],
    ['null', { usage: null }, undefined],
    ['an empty object', { usage: {} }, undefined],
    ['numbers that are none', { usage: { prompt_tokens: '7', completion_tokens: -1 } }, undefined],
    ['a list', [{ usage: { prompt_tokens: 1 } }], undefined],
    ['nothing', undefined, undefined],
  ])('%s', (_name, json, expected) => {
    expect(usageOf(json)).toEqual(expected);
  });
});

describe('mergeUsage', () => {
  it('joins what Anthropic splits, and lets later counts replace earlier ones', () => {
    const start = usageOf({ message: { usage: { input_tokens: 5, output_tokens: 1 } } }) as Usage;
    const end = usageOf({ usage: { output_tokens: 9 } }) as Usage;
    expect(mergeUsage(mergeUsage(undefined, start), end)).toEqual(counts(5, 9));
  });
});

describe('UsageTail', () => {
  function read(json: string, pieceBytes: number): Usage | undefined {
    const tail = new UsageTail();
    const bytes = Buffer.from(`??${json}??`);
    for (let at = 2; at < bytes.length - 2; at += pieceBytes)
      tail.push(bytes, at, Math.min(at + pieceBytes, bytes.length - 2));
    const found = tail.read();
    // What comes in one piece is read where it lies, and to the same result.
    expect(pieceBytes > json.length ? usageOfAnswer(bytes, 2, bytes.length - 2) : found).toEqual(found);
    return found;
  }
  const usage = '"usage": {"prompt_tokens":7,"total_tokens":7,"note":"} \\" {"}';
  const filler = `"data":"${'x'.repeat(3 * USAGE_TAIL_MAX_BYTES)}"`;

  it.each([1000, 7000, USAGE_TAIL_MAX_BYTES, USAGE_TAIL_MAX_BYTES + 1, 1e9])(
    'reads whole and long answers in pieces of %d',
    (pieceBytes) => {
      expect(read(`{"id":"x",${usage}}`, pieceBytes)).toEqual(counts(7));
      expect(read(`{${filler},${usage},"id":"x"}`, pieceBytes)).toEqual(counts(7));
      expect(read(`{${usage},${filler}}`, pieceBytes)).toBeUndefined();
      expect(read(`{${filler},"text":"\\"usage\\":{\\"prompt_tokens\\":1}"}`, pieceBytes)).toBeUndefined();
      const exact = `{"a":"${'x'.repeat(USAGE_TAIL_MAX_BYTES - 9 - usage.length)}",${usage}}`;
      expect(Buffer.byteLength(exact)).toBe(USAGE_TAIL_MAX_BYTES);
      expect(read(exact, pieceBytes)).toEqual(counts(7));
    },
  );

  it('takes the last that counts, and none from what is no JSON', () => {
    expect(
      read(`{${filler},"a":{"usage":{"prompt_tokens":1}},"usage":{"prompt_tokens":2},"b":{"usage":{}}}`, 500),
    ).toEqual(counts(2));
    expect(read('<html>"usage":{"prompt_tokens":1}</html>', 500)).toBeUndefined();
  });

  it('starts anew', () => {
    const tail = new UsageTail();
    const [first, second] = [
      Buffer.from(`{${filler},${usage}}`),
      Buffer.from('{"usage":{"prompt_tokens":1}}'),
    ];
    tail.push(first, 0, first.length);
    tail.reset();
    expect(tail.read()).toBeUndefined();
    tail.push(second, 0, second.length);
    expect(tail.read()).toEqual(counts(1));
  });
});
