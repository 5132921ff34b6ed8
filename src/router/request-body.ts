import type { TextRange } from '../domain/balancing/prompt-chain.js';
import { scanBody, type BodyProblem, type ByteRange, type ScannedBody } from './bytes/json-scan.js';
import { scanForm, spliceForm, type FormProblem, type ScannedForm } from './bytes/multipart-scan.js';
import { includeUsageEdit, spliceBody, type SplicedBody } from './bytes/splice.js';
import type { GatewayError } from './dialects.js';
import { isMultipartType, mediaType } from './media-type.js';
import type { EngineRoute } from './routes.js';

/** What routing and accounting need of a body, whatever its form, and the bytes themselves. */
export interface ReadBody {
  /** As the client wrote it. */
  readonly model: string;
  /** The client asked for a stream. */
  readonly stream: boolean;
  /** Bytes of prompt text, for the estimate of its tokens. */
  readonly promptBytes: number;
  /**
   * The prompt's text in the order an engine's template puts it, for comparing beginnings; empty when there is none to
   * compare, and after `release`.
   */
  promptRanges(): readonly TextRange[];
  /** Most output tokens of one answer that the client asked for, at least 0; undefined when it named no limit. */
  readonly maxTokens: number | undefined;
  /** Answers asked for at once, at least 1. */
  readonly choices: number;
  /** The gateway asks for usage where the client did not, and takes it out of the answer again. */
  readonly stripUsage: boolean;
  /**
   * The body for an engine that knows the model as `engineModel`; all else byte for byte.
   * @param requestId for engines that are asked by id to give a request up
   */
  forEngine(engineModel: string, requestId?: string): SplicedBody;
  /** Lets go of the bytes: there will be no other attempt, and a long stream must not keep them. */
  release(): void;
}

export type BodyReading =
  { readonly ok: true; readonly body: ReadBody } | { readonly ok: false; readonly error: GatewayError };

/** Reads a complete body of the kind its content type says. */
export function readBody(bytes: Buffer, contentType: string | undefined, route: EngineRoute): BodyReading {
  if (contentType !== undefined && isMultipartType(mediaType(contentType))) {
    const form = scanForm(bytes, contentType);
    return form.ok
      ? { ok: true, body: new FormBody(bytes, form) }
      : { ok: false, error: formError(form.problem) };
  }
  const scan = scanBody(bytes);
  return scan.ok
    ? { ok: true, body: new JsonBody(bytes, scan, route) }
    : { ok: false, error: bodyError(scan.problem) };
}

const NOTHING = Buffer.alloc(0);

/** What a picture, a sound or a file in a prompt counts for, as bytes of text: about a thousand tokens. */
const BLOB_AS_TEXT_BYTES = 4_096;
/** Answers at once that estimates are made for; OpenAI takes no more, and more is for the engine to refuse. */
const CHOICES_MAX = 128;

class JsonBody implements ReadBody {
  readonly promptBytes: number;
  readonly stripUsage: boolean;
  private readonly includeUsage: boolean;

  constructor(
    private bytes: Buffer,
    private readonly scan: ScannedBody,
    private readonly route: EngineRoute,
  ) {
    const conversation = size(scan.messages) + size(scan.prompt) + size(scan.input);
    const before = size(scan.tools) + size(scan.system) + size(scan.instructions);
    this.promptBytes = Math.max(0, conversation + before - scan.blobBytes) + scan.blobs * BLOB_AS_TEXT_BYTES;
    this.includeUsage = route.usageOption && scan.stream;
    this.stripUsage = this.includeUsage && includeUsageEdit(scan) !== undefined;
  }

  get model(): string {
    return this.scan.model;
  }
  get stream(): boolean {
    return this.scan.stream;
  }

  get maxTokens(): number | undefined {
    const { maxCompletionTokens, maxOutputTokens, maxTokens } = this.scan;
    // What an engine does not read on this route is no limit: an answer judged by it would be given up too early.
    const asked = this.route.dialect === 'responses' ? maxOutputTokens : (maxCompletionTokens ?? maxTokens);
    // Below 0 it means no limit to llama.cpp, and a refusal to others; either way it is no number to reckon with.
    return asked !== undefined && asked >= 0 ? asked : undefined;
  }

  get choices(): number {
    const { n = 1 } = this.scan;
    return Math.min(CHOICES_MAX, Math.max(1, Math.floor(n)));
  }

  promptRanges(): readonly TextRange[] {
    const { tools, system, instructions, messages, prompt, input } = this.scan;
    return [tools, system, instructions, messages, prompt, input].flatMap((range) =>
      range === undefined || range.to > this.bytes.length ? [] : [{ bytes: this.bytes, ...range }],
    );
  }

  forEngine(engineModel: string, requestId?: string): SplicedBody {
    const changes = { model: engineModel, includeUsage: this.includeUsage };
    return spliceBody(this.bytes, this.scan, requestId === undefined ? changes : { ...changes, requestId });
  }

  release(): void {
    this.bytes = NOTHING;
  }
}

class FormBody implements ReadBody {
  /** A file's length says little about its tokens. */
  readonly promptBytes = 0;
  readonly maxTokens = undefined;
  readonly choices = 1;
  readonly stripUsage = false;

  constructor(
    private bytes: Buffer,
    private readonly scan: ScannedForm,
  ) {}

  get model(): string {
    return this.scan.model;
  }
  get stream(): boolean {
    return this.scan.stream;
  }

  promptRanges(): readonly TextRange[] {
    return [];
  }

  forEngine(engineModel: string): SplicedBody {
    return spliceForm(this.bytes, this.scan, engineModel);
  }

  release(): void {
    this.bytes = NOTHING;
  }
}

const size = (range: ByteRange | undefined): number => (range === undefined ? 0 : range.to - range.from);

const MISSING_MODEL: GatewayError = {
  code: 'missing_model',
  message: 'the body names no model',
  param: 'model',
};
const DUPLICATE_MODEL: GatewayError = {
  code: 'duplicate_model',
  message: 'the body names the model more than once',
  param: 'model',
};

function bodyError(problem: BodyProblem): GatewayError {
  switch (problem.kind) {
    case 'invalid_json':
      return { code: 'invalid_json', message: INVALID_JSON[problem.detail](problem.at) };
    case 'too_deep':
      return { code: 'invalid_json', message: `the body is nested too deeply (byte ${problem.at})` };
    case 'missing_model':
      return MISSING_MODEL;
    case 'invalid_model':
      return invalidModel(problem.detail);
    case 'duplicate_model':
      return DUPLICATE_MODEL;
  }
}

type InvalidJson = Extract<BodyProblem, { kind: 'invalid_json' }>['detail'];

const INVALID_JSON: Record<InvalidJson, (at: number) => string> = {
  empty: () => 'the body is empty',
  byte_order_mark: () => 'the body starts with a byte order mark',
  not_utf8: () => 'the body is not UTF-8',
  not_an_object: () => 'the body must be a JSON object',
  syntax: (at) => `the body is not valid JSON (byte ${at})`,
};

function formError(problem: FormProblem): GatewayError {
  switch (problem.kind) {
    case 'invalid_multipart': {
      const reason = problem.detail.replaceAll('_', ' ');
      return { code: 'bad_request', message: `the form cannot be read: ${reason} (byte ${problem.at})` };
    }
    case 'missing_model':
      return MISSING_MODEL;
    case 'invalid_model':
      return invalidModel(problem.detail);
    case 'duplicate_model':
      return DUPLICATE_MODEL;
  }
}

type InvalidModel =
  | Extract<BodyProblem, { kind: 'invalid_model' }>['detail']
  | Extract<FormProblem, { kind: 'invalid_model' }>['detail'];

function invalidModel(detail: InvalidModel): GatewayError {
  // A name that long is nobody's: to the client it is a model that does not exist.
  if (detail === 'too_long') {
    return { code: 'model_not_found', message: 'no model has a name that long', param: 'model' };
  }
  return { code: 'invalid_model', message: 'the model must be a non-empty string', param: 'model' };
}
