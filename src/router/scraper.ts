import { request, type Agent } from 'undici';
import type { ScrapedLoad } from '../domain/balancing/endpoint-load.js';
import type { EngineKind } from '../domain/model-spec.js';
import type { RouteEndpoint } from './ports.js';
import { sideHeaders, sideUrl } from './prober.js';

/** Bytes of a metrics page that are read: vLLM's with all its histograms is about 200 KiB. */
const PAGE_MAX_BYTES = 4 * 1024 * 1024;
const TIMEOUT_MS = 4_000;

/** Engines that have load metrics under a name we know. */
const SCRAPED: ReadonlySet<string> = new Set<EngineKind>(['vllm', 'sglang', 'llamacpp', 'sim', 'embedded']);

export const isScraped = (kind: EngineKind | 'unknown'): boolean => SCRAPED.has(kind);

/** Names by engine; looked up all at once, since a simulated engine may speak any dialect. */
const RUNNING = ['vllm:num_requests_running', 'sglang:num_running_reqs', 'llamacpp:requests_processing'];
const WAITING = ['vllm:num_requests_waiting', 'sglang:num_queue_reqs', 'llamacpp:requests_deferred'];

/** What the page says of running and waiting requests; series of several ranks are added up. */
export function loadOf(page: string): ScrapedLoad {
  return { runningRequests: sumOf(page, RUNNING), waitingRequests: sumOf(page, WAITING) };
}

function sumOf(page: string, names: readonly string[]): number | undefined {
  let sum: number | undefined;
  for (const name of names) {
    for (let at = page.indexOf(name); at >= 0; at = page.indexOf(name, at + name.length)) {
      const value = sampleAt(page, at, name);
      if (value !== undefined) sum = (sum ?? 0) + value;
    }
  }
  return sum;
}

/** The value of the sample that starts at `at`; undefined for comments, longer names and what is no number. */
function sampleAt(page: string, at: number, name: string): number | undefined {
  if (at > 0 && page[at - 1] !== '\n') return undefined;
  const lineEnd = page.indexOf('\n', at);
  const rest = page.slice(at + name.length, lineEnd < 0 ? undefined : lineEnd);
  const match = /^(?:\{.*\})?\s+([-+.0-9eE]+)(?:\s+\d+)?\s*$/.exec(rest);
  const value = match?.[1] === undefined ? Number.NaN : Number(match[1]);
  return Number.isFinite(value) ? value : undefined;
}

/** Reads an engine's load; undefined when it has no metrics or did not answer in time. Never rejects. */
export async function scrape(endpoint: RouteEndpoint, agent: Agent): Promise<ScrapedLoad | undefined> {
  try {
    const response = await request(sideUrl(endpoint, '/metrics'), {
      dispatcher: agent,
      headers: sideHeaders(endpoint),
      signal: AbortSignal.timeout(TIMEOUT_MS),
      headersTimeout: 0,
      bodyTimeout: 0,
    });
    if (response.statusCode !== 200) {
      await response.body.dump({ limit: 64 * 1024 });
      return undefined;
    }
    return loadOf(await boundedText(response.body));
  } catch {
    return undefined;
  }
}

async function boundedText(body: AsyncIterable<Buffer>): Promise<string> {
  const pieces: Buffer[] = [];
  let bytes = 0;
  for await (const piece of body) {
    bytes += piece.length;
    if (bytes > PAGE_MAX_BYTES) break;
    pieces.push(piece);
  }
  return Buffer.concat(pieces).toString('utf8');
}
