/**
 * What time the server has, without being an agent to it: its gRPC listener is HTTP/2, and even the refusal of an unknown
 * method carries a date.
 */
import { readFileSync } from 'node:fs';
import { connect, type ClientHttp2Session } from 'node:http2';
import type { AgentTlsConfig } from '../config/agent-config.js';
import type { Clock } from '../shared/clock.js';
import { pause } from './wait.js';

export type ServerTime =
  | { readonly kind: 'time'; readonly wallMs: number }
  /** Somebody answers, but without a date, or not in HTTP/2. */
  | { readonly kind: 'unknown'; readonly reason: string };

const PATH = '/llmgw.agent.v1.AgentGateway/Time';

/** Asks at `host:port`; settles within `limitMs`. */
export async function serverTime(
  server: string,
  tls: AgentTlsConfig | undefined,
  clock: Clock,
  limitMs: number,
): Promise<ServerTime> {
  let session: ClientHttp2Session | undefined;
  const over = new AbortController();
  try {
    session = connect(`${tls === undefined ? 'http' : 'https'}://${server}`, credentialsOf(tls));
    return await Promise.race([
      ask(session),
      pause(clock, limitMs, over.signal).then((): ServerTime => ({ kind: 'unknown', reason: 'no answer' })),
    ]);
  } catch (error) {
    return { kind: 'unknown', reason: error instanceof Error ? error.message : String(error) };
  } finally {
    over.abort();
    session?.destroy();
  }
}

function ask(session: ClientHttp2Session): Promise<ServerTime> {
  return new Promise((resolve, reject) => {
    session.once('error', reject);
    const stream = session.request({
      ':method': 'POST',
      ':path': PATH,
      'content-type': 'application/grpc',
      te: 'trailers',
    });
    stream.once('error', reject);
    stream.once('response', (headers) => {
      const wallMs = Date.parse(headers.date ?? '');
      resolve(
        Number.isNaN(wallMs)
          ? { kind: 'unknown', reason: 'no date in its answer' }
          : { kind: 'time', wallMs },
      );
    });
    stream.end();
  });
}

function credentialsOf(tls: AgentTlsConfig | undefined) {
  const read = (path: string | undefined) => (path === undefined ? undefined : readFileSync(path));
  return tls === undefined ? {} : { ca: read(tls.caFile), cert: read(tls.certFile), key: read(tls.keyFile) };
}
