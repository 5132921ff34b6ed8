import { describe, expect, it } from 'vitest';
import { redactor, SECRET_NAME } from './redact.js';

describe('redactor', () => {
  const redact = redactor(['FAKE789-value', 'FAKE789', 'short']);

  it('takes out known values, the longer first, and leaves short ones alone', () => {
    expect(redact('key=FAKE789-value and FAKE789, a short word')).toBe(
      'key=[redacted] and [redacted], a short word',
    );
  });

  it.each([
    ['token hf_FAKE123456 here', 'hf_FAKE'],
    ['--api-key sk-FAKE456789', 'sk-FAKE'],
    ["argv: ['--api-key', 'plainvalue1']", 'plainvalue1'],
    ['api_key=abcd1234', 'abcd1234'],
    ["{'hf_token': 'abcd1234'}", 'abcd1234'],
    ['Authorization: Bearer abc.def', 'abc.def'],
    ['password: hunter22', 'hunter22'],
    ['ProxyError: http://me:pa55@proxy:3128/ refused', 'pa55'],
  ])('masks %j', (text, secret) => {
    expect(redact(text)).not.toContain(secret);
    expect(redact(text)).toContain('[redacted]');
  });

  it.each([
    '--tokenizer-mode auto --max-num-batched-tokens 8192',
    "api_key=None, hf_token='None'",
    'the tokenizer has 128 special tokens',
    'Using max_tokens: 4096 and prompt tokens 12',
    'listening on http://127.0.0.1:8000/v1, see mailto:a@b.c',
    'INFO: 127.0.0.1:1234 - "POST /v1/chat/completions HTTP/1.1" 200 OK',
  ])('leaves %j as it is', (text) => {
    expect(redact(text)).toBe(text);
  });

  it('takes out each line of a secret of several', () => {
    const key = redactor(['-----BEGIN KEY-----\nMIIEvQIBADANBg\r\n  kqhkiG9w0BAQ\nend\n']);
    expect(key('key is MIIEvQIBADANBg')).toBe('key is [redacted]');
    expect(key('kqhkiG9w0BAQ at the end')).toBe('[redacted] at the end');
  });

  it('knows names of secrets', () => {
    for (const name of ['HF_TOKEN', 'API_KEY', 'DB_PASSWORD', 'MY_SECRETS'])
      expect(name).toMatch(SECRET_NAME);
    for (const name of ['MAX_TOKENS_PER_BATCHES', 'PATH', 'KEYBOARD']) expect(name).not.toMatch(SECRET_NAME);
  });
});
