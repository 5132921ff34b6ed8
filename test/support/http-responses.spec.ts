import { describe, expect, it } from 'vitest';
import { eventData, parseResponses } from './http-responses.js';

const bytes = (text: string) => Buffer.from(text, 'latin1');

describe('parseResponses', () => {
  it('finds several responses, interim ones too', () => {
    const found = parseResponses(
      bytes(
        'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhiHTTP/1.1 204 No Content\r\n\r\n',
      ),
    );
    expect(found.map((r) => [r.status, r.body.toString(), r.complete])).toEqual([
      [100, '', true],
      [200, 'hi', true],
      [204, '', true],
    ]);
  });

  it('keeps chunks apart and sees a missing end', () => {
    const whole = 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n';
    const [complete] = parseResponses(bytes(whole));
    expect(complete?.chunks.map(String)).toEqual(['ab', 'c']);
    expect(complete?.complete).toBe(true);
    for (let cut = whole.indexOf('\r\n\r\n') + 4; cut < whole.length; cut++) {
      expect(parseResponses(bytes(whole.slice(0, cut)))[0]?.complete).toBe(false);
    }
  });

  it('calls a body framed by the close complete only when the connection ended', () => {
    const text = bytes('HTTP/1.1 200 OK\r\n\r\nabc');
    expect(parseResponses(text)[0]).toMatchObject({ framing: 'close', complete: false });
    expect(parseResponses(text, { closed: true })[0]?.complete).toBe(true);
  });

  it('throws on what is no HTTP', () => {
    expect(() =>
      parseResponses(bytes('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n')),
    ).toThrow('no chunk size');
    expect(() => parseResponses(bytes('data: 1\r\n\r\n'))).toThrow('no status line');
  });
});

describe('eventData', () => {
  it('gives the payloads of complete events only', () => {
    expect(eventData(': hi\n\ndata: {"a":1}\n\nevent: x\ndata: 2\n\ndata: half')).toEqual(['{"a":1}', '2']);
  });
});
