import { Agent, request } from 'undici';
import type { EngineKind } from '../domain/model-spec.js';
import type { RouteEndpoint } from './ports.js';

/** How one engine kind is asked whether it lives. */
export interface ProbeManner {
  readonly path: string;
  readonly everyMs: number;
  /** Longer than an engine's own check may take: SGLang's generates a token and waits at least a second. */
  readonly timeoutMs: number;
}

const USUAL: ProbeManner = { path: '/health', everyMs: 5_000, timeoutMs: 4_000 };
const RARE: ProbeManner = { path: '/health', everyMs: 15_000, timeoutMs: 10_000 };

export function probeManner(kind: EngineKind | 'unknown'): ProbeManner {
  return kind === 'sglang' ? RARE : USUAL;
}

/** What a probe found. `failed` says why, for people. */
export type ProbeFinding = { readonly healthy: true } | { readonly healthy: false; readonly why: string };

/** Bytes of an answer that are read; health bodies are empty or a line. */
const BODY_MAX_BYTES = 64 * 1024;

/** Connections of probes and scrapes: apart from the data path's, one at a time, none kept. */
export function sideAgent(): Agent {
  return new Agent({ pipelining: 0, connections: 16, keepAliveTimeout: 1, keepAliveMaxTimeout: 1 });
}

/** Where `path` is on an endpoint, outside the versioned API. */
export function sideUrl(endpoint: RouteEndpoint, path: string): string {
  const host = endpoint.host.includes(':') ? `[${endpoint.host}]` : endpoint.host;
  return `${endpoint.protocol}://${host}:${endpoint.port}${endpoint.basePath}${path}`;
}

export function sideHeaders(endpoint: RouteEndpoint): Record<string, string> {
  return endpoint.apiKey === undefined ? {} : { authorization: `Bearer ${endpoint.apiKey}` };
}

/**
 * Asks an engine whether it lives. Anything below 500 is life: an engine without a health page says 404, one that wants
 * a key 401. Never rejects.
 */
export async function probe(
  endpoint: RouteEndpoint,
  manner: ProbeManner,
  agent: Agent,
): Promise<ProbeFinding> {
  try {
    const response = await request(sideUrl(endpoint, manner.path), {
      dispatcher: agent,
      headers: sideHeaders(endpoint),
      signal: AbortSignal.timeout(manner.timeoutMs),
      headersTimeout: 0,
      bodyTimeout: 0,
    });
    await response.body.dump({ limit: BODY_MAX_BYTES });
    if (response.statusCode < 500) return { healthy: true };
    return { healthy: false, why: `status ${response.statusCode}` };
  } catch (error) {
    return { healthy: false, why: error instanceof Error ? error.message : String(error) };
  }
}
