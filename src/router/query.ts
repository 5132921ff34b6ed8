/**
 * Names under which clients put a credential into a query, in lower case and without marks: other providers' SDKs and
 * hand-made scripts do. None of them is a setting of an engine's.
 */
const CREDENTIALS: ReadonlySet<string> = new Set([
  'key',
  'apikey',
  'xapikey',
  'accesskey',
  'token',
  'accesstoken',
  'authtoken',
  'bearertoken',
  'idtoken',
  'auth',
  'authorization',
  'secret',
  'clientsecret',
  'password',
  'credential',
  'credentials',
  'sig',
  'signature',
]);

/**
 * The query (`?…`) without parameters that carry a credential, which are no more an engine's business than headers that
 * do; all else as it was sent.
 */
export function withoutCredentials(query: string): string {
  const parameters = query.slice(1).split('&');
  const kept = parameters.filter((parameter) => !isCredential(parameter));
  if (kept.length === parameters.length) return query;
  return kept.length === 0 ? '' : `?${kept.join('&')}`;
}

function isCredential(parameter: string): boolean {
  const end = parameter.indexOf('=');
  const name = decoded(end < 0 ? parameter : parameter.slice(0, end));
  return CREDENTIALS.has(name.toLowerCase().replace(/[^a-z]/g, ''));
}

function decoded(name: string): string {
  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
}
