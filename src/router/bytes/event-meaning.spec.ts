import { describe, expect, it } from 'vitest';

import { carriesToken, isErrorEvent, isUsageChunk } from './event-meaning.js';

const chat = (delta: unknown, more: object = {}) => ({
  object: 'chat.completion.chunk',
  choices: [{ index: 0, delta, ...more }],
});

describe('carriesToken', () => {
  it.each<[string, unknown]>([
    ['content', chat({ content: 'x' })],
    ['reasoning (vLLM, SGLang)', chat({ reasoning_content: 'x' })],
    ['reasoning', chat({ reasoning: 'x', content: null })],
    ['a tool call', chat({ tool_calls: [{ index: 0 }] })],
    ['a second choice', { choices: [{ delta: {} }, { delta: { content: 'x' } }] }],
    ['completions', { choices: [{ text: 'x' }] }],
    ['Anthropic text', { type: 'content_block_delta', delta: { type: 'text_delta', text: 'x' } }],
    ['Anthropic thinking', { type: 'content_block_delta', delta: { type: 'thinking_delta', thinking: 'x' } }],
    ['Responses text', { type: 'response.output_text.delta', delta: 'x' }],
    ['Responses tool call', { type: 'response.function_call_arguments.delta', delta: '{' }],
  ])('yes: %s', (_name, json) => {
    expect(carriesToken(json)).toBe(true);
  });

  it.each<[string, unknown]>([
    ['the role', chat({ role: 'assistant', content: '' })],
    ['the role with nulls', chat({ role: 'assistant', content: null, tool_calls: [] })],
    ['the end', chat({}, { finish_reason: 'stop' })],
    ['usage', { choices: [], usage: { prompt_tokens: 1 } }],
    ['Anthropic start', { type: 'message_start', message: { content: [] } }],
    ['Anthropic block start', { type: 'content_block_start', content_block: { type: 'text', text: '' } }],
    ['Anthropic end', { type: 'message_delta', delta: { stop_reason: 'end_turn' } }],
    ['an empty Anthropic delta', { type: 'content_block_delta', delta: { type: 'text_delta', text: '' } }],
    ['Responses prelude', { type: 'response.created', response: {} }],
    ['Responses done', { type: 'response.output_text.done', text: 'x' }],
    ['an error', { error: { message: 'x' } }],
    ['nothing', undefined],
  ])('no: %s', (_name, json) => {
    expect(carriesToken(json)).toBe(false);
  });
});

describe('isErrorEvent', () => {
  it.each<[string, string, unknown, boolean]>([
    ['OpenAI', '', { error: { message: 'x' } }, true],
    ['a plain text', '', { error: 'Unauthorized' }, true],
    ['SGLang flat', '', { object: 'error', message: 'The request queue is full.' }, true],
    ['Anthropic', 'error', { type: 'error', error: { type: 'overloaded_error' } }, true],
    ['by name alone', 'error', undefined, true],
    ['Responses failed', '', { type: 'response.failed', response: {} }, true],
    ['Responses error', '', { type: 'error', code: 'x' }, true],
    ['error null', '', { error: null, choices: [] }, false],
    ['inside a response', 'response.created', { type: 'response.created', response: { error: null } }, false],
    ['content', '', chat({ content: 'error' }), false],
  ])('%s', (_name, name, json, expected) => {
    expect(isErrorEvent(name, json)).toBe(expected);
  });
});

describe('isUsageChunk', () => {
  it.each<[unknown, boolean]>([
    [{ choices: [], usage: { prompt_tokens: 1 } }, true],
    [{ choices: [{}], usage: { prompt_tokens: 1 } }, false],
    [{ choices: [], usage: null }, false],
    [{ choices: [] }, false],
    [{ usage: { prompt_tokens: 1 } }, true],
    [{ choices: null, usage: { prompt_tokens: 1 } }, true],
    [{ type: 'message_delta', usage: { output_tokens: 1 } }, false],
  ])('%j', (json, expected) => {
    expect(isUsageChunk(json)).toBe(expected);
  });
});
