/**
 * The client API as a table: which paths exist, what their bodies are and how they speak. Everything else is 404,
 * so nothing an engine offers beyond this (weights, adapters, shutdown) can be reached through the gateway.
 */

/** How errors, events and endings look on a route. */
export type DialectName = 'openai' | 'responses' | 'anthropic';

/** What a route takes as body; `any` tells by the content type. */
export type BodyKind = 'json' | 'multipart' | 'any';

/** A path whose requests go to an engine, chosen by the body's `model`. */
export interface EngineRoute {
  readonly path: string;
  /** Value of the metric label `route`; bounded by this table. */
  readonly label: string;
  /** Position in `ENGINE_ROUTES`: metric series are kept in arrays by it. */
  readonly index: number;
  readonly dialect: DialectName;
  readonly body: BodyKind;
  /** The engine generates tokens one after the other: long answers are normal, and a stream may be asked for. */
  readonly generates: boolean;
  /** `stream_options.include_usage` is understood here, so usage can be asked for on streams. */
  readonly usageOption: boolean;
  /** Answers carry token counts; one without them is counted as missing. */
  readonly reportsUsage: boolean;
  /** Path on engines that serve it without the version prefix. */
  readonly bareEnginePath?: string;
}

type RouteDraft = Omit<EngineRoute, 'index' | 'label'>;

const plain = (path: string, extra: Partial<RouteDraft> = {}): RouteDraft => ({
  path,
  dialect: 'openai',
  body: 'json',
  generates: false,
  usageOption: false,
  reportsUsage: false,
  ...extra,
});

const DRAFTS: readonly RouteDraft[] = [
  plain('/v1/chat/completions', { generates: true, usageOption: true, reportsUsage: true }),
  plain('/v1/completions', { generates: true, usageOption: true, reportsUsage: true }),
  plain('/v1/responses', { generates: true, reportsUsage: true, dialect: 'responses' }),
  plain('/v1/messages', { generates: true, reportsUsage: true, dialect: 'anthropic' }),
  plain('/v1/messages/count_tokens', { dialect: 'anthropic' }),
  plain('/v1/embeddings', { reportsUsage: true }),
  plain('/v1/rerank'),
  plain('/v1/score'),
  plain('/v1/classify'),
  plain('/v1/moderations'),
  plain('/v1/audio/transcriptions', { body: 'multipart', generates: true }),
  plain('/v1/audio/translations', { body: 'multipart', generates: true }),
  plain('/v1/audio/speech', { generates: true }),
  plain('/v1/images/generations', { generates: true }),
  plain('/v1/images/edits', { body: 'any', generates: true }),
  plain('/v1/tokenize', { bareEnginePath: '/tokenize' }),
  plain('/v1/detokenize', { bareEnginePath: '/detokenize' }),
];

/** Every route to an engine; all are POST. */
export const ENGINE_ROUTES: readonly EngineRoute[] = DRAFTS.map((draft, index) => ({
  ...draft,
  index,
  label: draft.path,
}));

const BY_PATH = new Map(ENGINE_ROUTES.map((route) => [route.path, route]));

/** Label of everything that is no route: a client must not be able to invent label values. */
export const OTHER_ROUTE_LABEL = 'other';

/** Where a request goes. */
export type RouteMatch =
  | { readonly kind: 'engine'; readonly route: EngineRoute }
  | { readonly kind: 'models' }
  | { readonly kind: 'model'; readonly id: string }
  | { readonly kind: 'health' }
  | { readonly kind: 'preflight'; readonly allow: string }
  | { readonly kind: 'methodNotAllowed'; readonly allow: string; readonly dialect: DialectName }
  | { readonly kind: 'notFound'; readonly dialect: DialectName };

const MODELS: RouteMatch = { kind: 'models' };
const HEALTH: RouteMatch = { kind: 'health' };
const NOT_FOUND: RouteMatch = { kind: 'notFound', dialect: 'openai' };
const NO_MESSAGES: RouteMatch = { kind: 'notFound', dialect: 'anthropic' };
const ENGINE_MATCHES = new Map(
  ENGINE_ROUTES.map((route) => [route.path, { kind: 'engine', route } as RouteMatch]),
);

const READ_METHODS = 'GET, HEAD, OPTIONS';
const POST_METHODS = 'POST, OPTIONS';
/** What the server as a whole takes. */
export const ALL_METHODS = 'GET, HEAD, POST, OPTIONS';
const MODEL_PREFIX = '/v1/models/';

/** Finds the route of `method path`; `path` comes without its query. */
export function matchRoute(method: string, path: string): RouteMatch {
  if (method === 'POST') {
    const match = ENGINE_MATCHES.get(path);
    if (match !== undefined) return match;
  }
  const engine = BY_PATH.get(path);
  if (method === 'OPTIONS' && path === '*') return { kind: 'preflight', allow: ALL_METHODS };
  const known = engine !== undefined || isReadPath(path);
  // Below it are other parts of the same API (batches), whose clients look for errors in its form.
  if (!known) return path.startsWith('/v1/messages/') ? NO_MESSAGES : NOT_FOUND;
  if (method === 'OPTIONS') {
    return { kind: 'preflight', allow: engine === undefined ? READ_METHODS : POST_METHODS };
  }
  if (engine !== undefined) {
    return { kind: 'methodNotAllowed', allow: POST_METHODS, dialect: engine.dialect };
  }
  if (method !== 'GET' && method !== 'HEAD') {
    return { kind: 'methodNotAllowed', allow: READ_METHODS, dialect: 'openai' };
  }
  if (path === '/health') return HEALTH;
  return path === '/v1/models' ? MODELS : { kind: 'model', id: decodedId(path.slice(MODEL_PREFIX.length)) };
}

function isReadPath(path: string): boolean {
  return (
    path === '/health' ||
    path === '/v1/models' ||
    (path.startsWith(MODEL_PREFIX) && path.length > MODEL_PREFIX.length)
  );
}

/** Model ids hold `/`, `:` and `@`, which some clients encode and some do not. */
function decodedId(id: string): string {
  try {
    return decodeURIComponent(id);
  } catch {
    return id;
  }
}
