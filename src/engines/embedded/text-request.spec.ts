import { describe, expect, it } from 'vitest';
import type { JsonObject } from '../json-fields.js';
import { ApiError } from './api-error.js';
import { readMessages, readPrompts, readTextRequest } from './text-request.js';

const half = () => 0.5;
const read = (body: JsonObject, chat = true) => readTextRequest(body, chat, half);

describe('readTextRequest', () => {
  it('has defaults; a completion is short, a chat as long as it gets', () => {
    expect(read({}).sampling).toMatchObject({
      maxTokens: undefined,
      temperature: 0.8,
      topK: 40,
      seed: 0x8000_0000,
    });
    expect(read({}, false).sampling.maxTokens).toBe(16);
  });

  it('reads what clients send', () => {
    const request = read({
      stream: true,
      stream_options: { include_usage: true, continuous_usage_stats: true },
      max_tokens: 5,
      max_completion_tokens: 7,
      temperature: 0,
      top_k: -1,
      seed: -1,
      stop: ['a', '', 'b'],
      unknown_member: 1,
    });
    expect(request).toMatchObject({ stream: true, includeUsage: true, continuousUsage: true });
    expect(request.sampling).toMatchObject({
      maxTokens: 7,
      temperature: 0,
      topK: 0,
      seed: 0xffff_ffff,
      stops: ['a', 'b'],
    });
    expect(read({ stop: 'x' }).sampling.stops).toEqual(['x']);
  });

  it.each([
    [{ n: 2 }, 'n'],
    [{ logprobs: true }, 'logprobs'],
    [{ logprobs: 0 }, 'logprobs'],
    [{ tools: [{}] }, 'tools'],
    [{ response_format: { type: 'json_object' } }, 'response_format'],
    [{ max_tokens: 0 }, 'max_tokens'],
    [{ max_tokens: 1.5 }, 'max_tokens'],
    [{ temperature: 'hot' }, 'temperature'],
    [{ top_p: 1.5 }, 'top_p'],
    [{ seed: 1.5 }, 'seed'],
    [{ stop: 5 }, 'stop'],
    [{ stop: ['a', 1] }, 'stop'],
    [{ stop: ['a', 'b', 'c', 'd', 'e'] }, 'stop'],
  ])('refuses %j and names the member', (body, param) => {
    expect(() => read(body)).toThrow(expect.objectContaining({ status: 400, param }));
  });

  it('takes the harmless forms of members it does not support', () => {
    expect(() =>
      read({
        n: null,
        logprobs: false,
        tools: [],
        response_format: { type: 'text' },
        echo: false,
        seed: null,
      }),
    ).not.toThrow();
  });
});

describe('readMessages', () => {
  it('joins text parts and knows the newer name of the system role', () => {
    expect(
      readMessages({
        messages: [
          { role: 'developer', content: 'd' },
          {
            role: 'user',
            content: [
              { type: 'text', text: 'a' },
              { type: 'text', text: 'b' },
            ],
          },
          { role: 'assistant', content: null },
        ],
      }),
    ).toEqual([
      { role: 'system', text: 'd' },
      { role: 'user', text: 'ab' },
      { role: 'assistant', text: '' },
    ]);
  });

  it.each([
    [{}],
    [{ messages: [] }],
    [{ messages: ['hi'] }],
    [{ messages: [{ role: 'tool', content: 'x' }] }],
    [{ messages: [{ role: 'user', content: [{ type: 'image_url', image_url: {} }] }] }],
  ])('refuses %j', (body) => {
    expect(() => readMessages(body)).toThrow(ApiError);
  });
});

describe('readPrompts', () => {
  it('takes text, texts, token ids and lists of them', () => {
    expect(readPrompts('a', 'prompt')).toEqual(['a']);
    expect(readPrompts(['a', 'b'], 'prompt')).toEqual(['a', 'b']);
    expect(readPrompts([1, 2], 'prompt')).toEqual([[1, 2]]);
    expect(readPrompts([[1], [2, 3]], 'prompt')).toEqual([[1], [2, 3]]);
  });

  it.each([[undefined], [[]], [[{}]], [[[]]], [Array.from({ length: 65 }, () => 'x')]])(
    'refuses %j',
    (value) => {
      expect(() => readPrompts(value, 'prompt')).toThrow(ApiError);
    },
  );
});
