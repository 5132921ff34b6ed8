import { request, type Agent } from 'undici';
import type { EndpointState } from './endpoint-state.js';
import { sideHeaders, sideUrl } from './prober.js';

/** Longest wait for an engine to confirm that it gave a request up, before its connection is closed anyway. */
const ABORT_TIMEOUT_MS = 200;

/**
 * SGLang builds forget a request when its connection closes and only then look for it to stop it, so it generates to the
 * end for nobody. Asked by id **before** the close they stop at once.
 */
export const wantsAbortCall = (endpoint: EndpointState): boolean => endpoint.endpoint.engine === 'sglang';

/** Asks the engine to give up request `rid`. Never rejects; resolves when it did, or in vain after a short while. */
export async function abortAtEngine(endpoint: EndpointState, rid: string, agent: Agent): Promise<void> {
  try {
    const response = await request(sideUrl(endpoint.endpoint, '/abort_request'), {
      method: 'POST',
      dispatcher: agent,
      headers: { ...sideHeaders(endpoint.endpoint), 'content-type': 'application/json' },
      body: JSON.stringify({ rid }),
      signal: AbortSignal.timeout(ABORT_TIMEOUT_MS),
      headersTimeout: 0,
      bodyTimeout: 0,
    });
    await response.body.dump({ limit: 64 * 1024 });
  } catch {
    // The close that follows is the abort every other engine gets.
  }
}
