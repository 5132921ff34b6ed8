/** Small HTTP questions to an engine: bounded in time and size, one connection each, never following anything. */
import { Agent, request } from 'undici';
import type { Clock } from '../shared/clock.js';
import { errorCode } from './errno.js';
import { PROBE_BODY_MAX_BYTES } from './limits.js';
import { pause } from './wait.js';

export type HttpAnswer =
  | { readonly kind: 'answer'; readonly status: number; readonly body: string }
  /** Nobody listens. */
  | { readonly kind: 'refused' }
  /** No whole answer in time: busy or hung, one answer cannot tell. */
  | { readonly kind: 'timeout' }
  | { readonly kind: 'broken'; readonly message: string };

export interface EngineAddress {
  readonly host: string;
  readonly port: number;
}

export class EngineHttp {
  // A pooled connection could belong to the engine's predecessor on the same port.
  private readonly dispatcher = new Agent({ pipelining: 0, headersTimeout: 0, bodyTimeout: 0 });

  constructor(private readonly clock: Clock) {}

  async ask(
    address: EngineAddress,
    path: string,
    options: { readonly timeoutMs: number; readonly body?: unknown; readonly signal?: AbortSignal },
  ): Promise<HttpAnswer> {
    const abort = new AbortController();
    const over = new AbortController();
    const cancel = (): void => abort.abort();
    options.signal?.addEventListener('abort', cancel, { once: true });
    void pause(this.clock, options.timeoutMs, over.signal).then(cancel);
    try {
      return await this.exchange(address, path, options.body, abort.signal);
    } catch (error) {
      return failure(error, abort.signal);
    } finally {
      over.abort();
      options.signal?.removeEventListener('abort', cancel);
    }
  }

  async close(): Promise<void> {
    await this.dispatcher.destroy();
  }

  private async exchange(
    address: EngineAddress,
    path: string,
    body: unknown,
    signal: AbortSignal,
  ): Promise<HttpAnswer> {
    const host = address.host.includes(':') ? `[${address.host}]` : address.host;
    const response = await request(`http://${host}:${address.port}${path}`, {
      method: body === undefined ? 'GET' : 'POST',
      ...(body === undefined
        ? {}
        : { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } }),
      dispatcher: this.dispatcher,
      signal,
      reset: true,
    });
    const chunks: Buffer[] = [];
    let bytes = 0;
    for await (const chunk of response.body as AsyncIterable<Buffer>) {
      bytes += chunk.length;
      if (bytes > PROBE_BODY_MAX_BYTES) {
        response.body.destroy();
        return { kind: 'broken', message: `answer to ${path} is longer than ${PROBE_BODY_MAX_BYTES} bytes` };
      }
      chunks.push(chunk);
    }
    return { kind: 'answer', status: response.statusCode, body: Buffer.concat(chunks).toString('utf8') };
  }
}

function failure(error: unknown, signal: AbortSignal): HttpAnswer {
  if (signal.aborted) return { kind: 'timeout' };
  const code = errorCode(error);
  // An engine that is still starting may have bound the port without listening, or close what it cannot serve yet.
  if (code === 'ECONNREFUSED' || code === 'ECONNRESET' || code === 'UND_ERR_SOCKET')
    return { kind: 'refused' };
  return { kind: 'broken', message: error instanceof Error ? error.message : String(error) };
}
