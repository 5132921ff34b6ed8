import type { ApiErrorCode } from '../shared/errors.js';
import { scanBody, type BodyProblem, type ByteRange, type ScannedBody } from './bytes/json-scan.js';
import { includeUsageEdit, spliceBody, type SplicedBody } from './bytes/splice.js';
import type { GatewayError } from './dialects.js';
import type { EngineRoute } from './routes.js';

/** What routing and accounting need of a body, whatever its form. */
export interface ReadBody {
  readonly model: string;
  /** The client asked for a stream. */
  readonly stream: boolean;
  /** Bytes of prompt text, for the estimate of its tokens. */
  readonly promptBytes: number;
  /** Most output tokens the client asked for; undefined when it named no limit. */
  readonly maxTokens: number | undefined;
  /** The gateway asks for usage where the client did not, and takes it out of the answer again. */
  readonly stripUsage: boolean;
  /** The body for an engine that knows the model as `engineModel`. */
  forEngine(engineModel: string): SplicedBody;
}

export type BodyReading =
  { readonly ok: true; readonly body: ReadBody } | { readonly ok: false; readonly error: GatewayError };

/** Reads a JSON body. */
export function readJsonBody(bytes: Buffer, route: EngineRoute): BodyReading {
  const scan = scanBody(bytes);
  if (!scan.ok) return { ok: false, error: bodyError(scan.problem) };
  return { ok: true, body: jsonBody(bytes, scan, route) };
}

function jsonBody(bytes: Buffer, scan: ScannedBody, route: EngineRoute): ReadBody {
  const includeUsage = route.usageOption && scan.stream;
  return {
    model: scan.model,
    stream: scan.stream,
    promptBytes: promptBytes(scan),
    maxTokens: scan.maxCompletionTokens ?? scan.maxTokens,
    stripUsage: includeUsage && includeUsageEdit(scan) !== undefined,
    forEngine: (model) => spliceBody(bytes, scan, { model, includeUsage }),
  };
}

function promptBytes(scan: ScannedBody): number {
  return size(scan.messages) + size(scan.prompt) + size(scan.input) + size(scan.tools) + size(scan.system);
}

const size = (range: ByteRange | undefined): number => (range === undefined ? 0 : range.to - range.from);

function bodyError(problem: BodyProblem): GatewayError {
  switch (problem.kind) {
    case 'invalid_json':
      return invalidJson(problem.detail, problem.at);
    case 'too_deep':
      return { code: 'invalid_json', message: `the body is nested too deeply (byte ${problem.at})` };
    case 'missing_model':
      return { code: 'missing_model', message: 'the body names no model', param: 'model' };
    case 'invalid_model':
      return { code: 'invalid_model', message: 'the model must be a non-empty string', param: 'model' };
    case 'duplicate_model':
      return { code: 'duplicate_model', message: 'the body names the model more than once', param: 'model' };
  }
}

type InvalidJson = Extract<BodyProblem, { kind: 'invalid_json' }>['detail'];

function invalidJson(detail: InvalidJson, at: number): GatewayError {
  const code: ApiErrorCode = 'invalid_json';
  switch (detail) {
    case 'empty':
      return { code, message: 'the body is empty' };
    case 'byte_order_mark':
      return { code, message: 'the body starts with a byte order mark' };
    case 'not_utf8':
      return { code, message: 'the body is not UTF-8' };
    case 'not_an_object':
      return { code, message: 'the body must be a JSON object' };
    case 'syntax':
      return { code, message: `the body is not valid JSON (byte ${at})` };
  }
}
