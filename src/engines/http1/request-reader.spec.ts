import { describe, expect, it } from 'vitest';
import { type Http1Request, RequestReader } from './request-reader.js';

function readAll(text: string, pieceBytes = text.length): Http1Request[] {
  const reader = new RequestReader({ maxHeadBytes: 200, maxBodyBytes: 50 });
  const bytes = Buffer.from(text, 'latin1');
  const found: Http1Request[] = [];
  for (let i = 0; i < bytes.length; i += pieceBytes) {
    reader.push(bytes.subarray(i, i + pieceBytes));
    for (let request = reader.next(); request !== undefined; request = reader.next()) found.push(request);
  }
  return found;
}

describe('RequestReader', () => {
  const two =
    'POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc' +
    '\r\nPOST /b HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2;ext=1\r\nde\r\n1\r\nf\r\n0\r\nTrailer: t\r\n\r\n' +
    'GET /c HTTP/1.0\r\n\r\n';

  it.each([1, 2, 3, 7, 1000])('reads pipelined requests that arrive in pieces of %i bytes', (pieceBytes) => {
    const found = readAll(two, pieceBytes);
    expect(found.map((r) => [r.method, r.target, r.version, r.body.toString()])).toEqual([
      ['POST', '/a', '1.1', 'abc'],
      ['POST', '/b', '1.1', 'def'],
      ['GET', '/c', '1.0', ''],
    ]);
  });

  it.each([
    ['GET /\r\n\r\n', 400],
    ['GET / HTTP/2.0\r\n\r\n', 400],
    ['GET / HTTP/1.1\r\nbad line\r\n\r\n', 400],
    ['GET / HTTP/1.1\r\nname : x\r\n\r\n', 400],
    ['GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n', 400],
    ['GET / HTTP/1.1\r\nContent-Length: +1\r\n\r\n', 400],
    ['GET / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n', 400],
    ['GET / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n', 400],
    ['GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n', 400],
    ['GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc', 400],
    ['GET / HTTP/1.1\r\nContent-Length: 51\r\n\r\n', 413],
    ['GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n33\r\n', 413],
    [`GET /${'x'.repeat(300)}`, 431],
  ])('refuses %j', (text, status) => {
    expect(() => readAll(text)).toThrow(expect.objectContaining({ status }));
  });

  it('asks for the body when the head expects it and nothing came yet', () => {
    const reader = new RequestReader();
    let asked = 0;
    reader.onExpectContinue = () => asked++;
    reader.push(Buffer.from('POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n'));
    expect(reader.next()).toBeUndefined();
    expect(asked).toBe(1);
    reader.push(Buffer.from('ok'));
    expect(reader.next()?.body.toString()).toBe('ok');
    expect(reader.idle).toBe(true);
  });
});
