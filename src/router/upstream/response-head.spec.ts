import { describe, expect, it } from 'vitest';

import { HEADERS_MAX, parseResponseHead, UpstreamHead, type ResponseProblem } from './response-head.js';

function head(...lines: string[]): UpstreamHead {
  const parsed = parseResponseHead(['HTTP/1.1 200 OK', ...lines].join('\r\n'), false);
  if (!(parsed instanceof UpstreamHead)) throw new Error(parsed);
  return parsed;
}

describe('parseResponseHead', () => {
  it('keeps headers in order, names in lower case, values trimmed', () => {
    const parsed = head('Content-Type: text/event-stream', 'X-A:\t b\tc ', 'x-a: d', 'X-Empty:');
    expect(parsed.headers).toEqual([
      'content-type',
      'text/event-stream',
      'x-a',
      'b\tc',
      'x-a',
      'd',
      'x-empty',
      '',
    ]);
    expect(parsed).toMatchObject({
      status: 200,
      reason: 'OK',
      minorVersion: 1,
      contentType: 'text/event-stream',
      framing: 'close',
      keepAlive: false,
    });
    expect([parsed.get('x-a'), parsed.get('x-b')]).toEqual(['b\tc', undefined]);
  });

  it.each<[string[], Partial<UpstreamHead>]>([
    [['Content-Length: 5'], { framing: 'length', contentLength: 5, keepAlive: true }],
    [['content-length: 0'], { framing: 'none', contentLength: 0, keepAlive: true }],
    [['Transfer-Encoding: Chunked'], { framing: 'chunked', keepAlive: true }],
    [['transfer-encoding: chunked', 'connection: close'], { framing: 'chunked', keepAlive: false }],
    [['content-length: 5', 'connection: keep-alive, Close'], { keepAlive: false }],
    [['content-length: 5', 'keep-alive: timeout=5, max=100'], { keepAlive: true, keepAliveTimeoutMs: 5000 }],
    [['content-length: 5', 'keep-alive: max=100,Timeout = 7'], { keepAliveTimeoutMs: 7000 }],
    [['content-length: 5', 'keep-alive: x-timeout=7'], { keepAliveTimeoutMs: undefined }],
  ])('%j', (lines, expected) => {
    expect(head(...lines)).toMatchObject(expected);
  });

  it.each<[string, ResponseProblem]>([
    ['HTTP/1.1 200 OK\r\nx: a\r\n b', 'folded_header'],
    ['HTTP/1.1 200 OK\r\nx : a', 'bad_header_name'],
    ['HTTP/1.1 200 OK\r\n: a', 'bad_header_name'],
    ['HTTP/1.1 200 OK\r\nx', 'bad_header_name'],
    ['HTTP/1.1 200 OK\r\nx: a\nb: c', 'bad_line_ending'],
    ['HTTP/1.1 200 OK\r\nx: a\rb', 'bad_line_ending'],
    ['HTTP/1.1 200 OK\nx: a', 'bad_line_ending'],
    ['HTTP/1.1 200 OK\r\nx: a\0b', 'bad_header_value'],
    ['HTTP/1.1 200 OK\r\nx: \x7f', 'bad_header_value'],
    ['HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 5', 'duplicate_content_length'],
    ['HTTP/1.1 200 OK\r\ncontent-length: 0x5', 'bad_content_length'],
    ['HTTP/1.1 200 OK\r\ncontent-length: -5', 'bad_content_length'],
    [
      'HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked',
      'content_length_with_transfer_encoding',
    ],
    ['HTTP/1.1 200 OK\r\ntransfer-encoding: identity', 'unsupported_transfer_encoding'],
    ['HTTP/1.0 200 OK\r\ntransfer-encoding: chunked', 'unsupported_transfer_encoding'],
    ['HTTP/1.1 099 X', 'bad_status_line'],
    ['HTTP/1.1 600 X', 'bad_status_line'],
    ['HTTP/1.1 2000', 'bad_status_line'],
    ['HTTP/1.1  200 OK', 'bad_status_line'],
    ['HTTP/1.2 200 OK', 'bad_status_line'],
    ['http/1.1 200 OK', 'bad_status_line'],
    ['HTTP/1.1 200 O\0K', 'bad_status_line'],
    ['', 'bad_status_line'],
    [`HTTP/1.1 200 OK${'\r\nx: y'.repeat(HEADERS_MAX + 1)}`, 'too_many_headers'],
  ])('refuses %j', (text, problem) => {
    expect(parseResponseHead(text, false)).toBe(problem);
  });

  it('knows answers without a payload', () => {
    const bodiless = (status: number, noBody: boolean) =>
      parseResponseHead(`HTTP/1.1 ${status} X\r\ncontent-length: 9`, noBody);
    expect(bodiless(204, false)).toMatchObject({ framing: 'none', keepAlive: false });
    expect(bodiless(304, false)).toMatchObject({ framing: 'none', keepAlive: true, contentLength: 9 });
    expect(bodiless(200, true)).toMatchObject({ framing: 'none', keepAlive: true, contentLength: 9 });
  });
});
