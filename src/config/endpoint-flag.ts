import { maskUserinfo, parseEndpointUrl } from './address.js';
import { EndpointConfig } from './server-config.js';
import type { Parsed } from './units.js';

const EXPECTED = 'expected id=URL=model[,model]';

/** How the flag is named in a problem; a password in the URL is not repeated. */
export const endpointFlagSource = (spec: string): string => `--endpoint "${maskUserinfo(spec)}"`;

/**
 * Reads `id=URL=model[,model]`. Split at the first two `=` only: model names may hold one.
 * Blanks round the parts do not count and a trailing `/` of the URL is dropped.
 */
export function parseEndpointFlag(spec: string): Parsed<EndpointConfig> {
  const first = spec.indexOf('=');
  const second = spec.indexOf('=', first + 1);
  if (first < 0 || second < 0) return { ok: false, problem: EXPECTED };
  const id = spec.slice(0, first).trim();
  const url = spec.slice(first + 1, second).trim();
  const models = spec
    .slice(second + 1)
    .split(',')
    .map((model) => model.trim());
  if (id === '' || url === '' || models.some((model) => model === '')) {
    return { ok: false, problem: EXPECTED };
  }
  const target = parseEndpointUrl(url);
  if (!target.ok) return { ok: false, problem: `${EXPECTED}: ${target.problem}` };
  const endpoint = Object.assign(new EndpointConfig(), { id, url: url.replace(/\/+$/, ''), models });
  return { ok: true, value: endpoint };
}
