import type { IncomingMessage, ServerResponse } from 'node:http';
import { ApiError } from './api-error.js';

/** Longest request body, bytes. */
const MAX_BODY_BYTES = 64 * 1024 * 1024;

/** Reads a request's body. Throws `ApiError` 413 when it is too large. */
export async function readBody(request: IncomingMessage): Promise<Buffer> {
  const parts: Buffer[] = [];
  let bytes = 0;
  for await (const part of request as AsyncIterable<Buffer>) {
    bytes += part.length;
    if (bytes > MAX_BODY_BYTES) throw new ApiError(413, `the body is longer than ${MAX_BODY_BYTES} bytes`);
    parts.push(part);
  }
  return Buffer.concat(parts);
}

export function sendJson(response: ServerResponse, status: number, body: string): void {
  send(response, status, 'application/json', body);
}

export function send(response: ServerResponse, status: number, type: string, body: string): void {
  response.writeHead(status, { 'content-type': type, 'content-length': Buffer.byteLength(body) });
  response.end(body);
}

/** Answers with an error: a real one before the head is out, an event in a stream, a cut when neither can be told. */
export function sendError(response: ServerResponse, error: ApiError): void {
  if (response.destroyed || response.writableEnded) return;
  if (!response.headersSent) return sendJson(response, error.status, error.body);
  if (response.getHeader('content-type') === 'text/event-stream') {
    // Named, since readers of named events see no other; to all others the name says nothing.
    response.end(`event: error\ndata: ${error.body}\n\n`);
    return;
  }
  response.destroy();
}
