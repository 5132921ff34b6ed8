import type { DialectName } from './routes.js';

type Members = Record<string, unknown>;

/**
 * What is wrong, as members of an `error` object, out of the JSON of an engine in whatever shape that kind of engine has:
 * `{"error":{…}}` (OpenAI, vLLM, llama.cpp, Anthropic), `{"error":"text","error_type":…}` (TGI, vLLM without a key),
 * `{"object":"error","message":…}` (SGLang), `{"response":{"error":{…}}}` (Responses events), `{"detail":…}` (FastAPI and what is built on it), `{"message":…}` and
 * `{"title":…}` (proxies in between). Undefined where nothing of it is an error to be shown.
 */
export function errorMembers(json: string): Members | undefined {
  return membersOf(parsed(json));
}

function membersOf(value: unknown): Members | undefined {
  if (!isObject(value)) return undefined;
  const { error, object: _object, ...others } = value;
  // A Responses API event carries the whole response, with what went wrong in it.
  if (error === undefined && isObject(others['response'])) return membersOf(others['response']);
  if (isObject(error)) return error;
  if (isText(error)) return { ...renamedType(others), message: error };
  if (isText(others['message'])) return others;
  const { detail, ...rest } = others;
  if (isText(detail)) return { ...rest, message: detail };
  if (isObject(detail)) return membersOf(detail);
  if (Array.isArray(detail) && detail.length > 0) return { ...rest, message: complaints(detail), detail };
  return isText(others['title']) ? { ...others, message: others['title'] } : undefined;
}

/** TGI names the type beside the error. */
function renamedType({ error_type: type, ...others }: Members): Members {
  return isText(type) ? { ...others, type } : others;
}

/** A validator's list of complaints as one line: `body.messages: Field required; …`. */
function complaints(list: readonly unknown[]): string {
  const words = list.map((one) => {
    if (!isObject(one) || !isText(one['msg'])) return typeof one === 'string' ? one : JSON.stringify(one);
    const { loc, msg } = one;
    return Array.isArray(loc) && loc.length > 0 ? `${loc.join('.')}: ${msg as string}` : (msg as string);
  });
  return words.join('; ');
}

/**
 * True if a client of `dialect` finds the message in the body as it is, so that the engine's own bytes can be relayed.
 * An `error` object without a message is left alone too: there is nothing to be found anywhere.
 */
export function isShapedFor(dialect: DialectName, json: string): boolean {
  const value = parsed(json);
  if (!isObject(value) || !isObject(value['error'])) return false;
  return dialect !== 'anthropic' || value['type'] === 'error';
}

function parsed(json: string): unknown {
  try {
    return JSON.parse(json);
  } catch {
    return undefined;
  }
}

const isObject = (value: unknown): value is Members =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

const isText = (value: unknown): value is string => typeof value === 'string' && value !== '';
