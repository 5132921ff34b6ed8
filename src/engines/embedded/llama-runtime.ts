import { open } from 'node:fs/promises';
import type {
  ChatHistoryItem,
  LlamaContextSequence,
  LlamaEmbeddingContext,
  LlamaModel,
  Token,
} from 'node-llama-cpp';
import { sharedPrefix, type Slot } from './slot-pool.js';
import { StopScanner, TokenDecoder } from './text-stream.js';

/** A prompt is read in pieces of this many tokens: between two pieces an abort is noticed. */
const PREFILL_PIECE_TOKENS = 128;

/** Largest context of the embedding side, tokens. */
const EMBEDDING_CONTEXT_TOKENS = 2048;

export interface RuntimeOptions {
  readonly modelFile: string;
  readonly slots: number;
  /** Tokens per slot; less when the model allows less. */
  readonly contextTokens: number;
  readonly threads: number;
  /** Told now and then how much is loaded, percent. */
  readonly onProgress?: (percent: number) => void;
}

/** How a text is to be generated. */
export interface Sampling {
  readonly maxTokens: number | undefined;
  readonly temperature: number;
  readonly topP: number;
  /** 0 = all tokens. */
  readonly topK: number;
  readonly minP: number;
  readonly seed: number;
  readonly stops: readonly string[];
  /** Go on when the model ends its text; for load tests that need a length. */
  readonly ignoreEnd: boolean;
}

export interface GenerationResult {
  readonly finish: 'stop' | 'length';
  readonly completionTokens: number;
}

export interface ChatMessage {
  readonly role: 'system' | 'user' | 'assistant';
  readonly text: string;
}

/** The model file cannot be used; the message is for whoever started the engine. */
export class ModelLoadError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'ModelLoadError';
  }
}

/** One sequence of the model's context. */
export class LlamaSlot implements Slot {
  constructor(
    private readonly sequence: LlamaContextSequence,
    private readonly model: LlamaModel,
  ) {}

  get contextTokens(): readonly number[] {
    return this.sequence.contextTokens;
  }

  /** Keeps what the slot remembers of `tokens`, forgets the rest; gives how many tokens need not be read again. */
  async reuse(tokens: readonly number[]): Promise<number> {
    // The last token is always read: its output is the first answer token.
    const keep = Math.min(sharedPrefix(this.sequence.contextTokens, tokens), tokens.length - 1);
    await this.sequence.eraseContextTokenRanges([{ start: keep, end: this.sequence.nextTokenIndex }]);
    // Models with sliding windows may have had to forget more than asked.
    if (this.sequence.nextTokenIndex > keep) await this.sequence.clearHistory();
    return this.sequence.nextTokenIndex;
  }

  /**
   * Reads what is not remembered of `tokens` and generates. `onText` gets whole characters, never part of a stop string.
   * Returns early when `signal` aborts; the slot can be used again when it has returned.
   */
  async generate(
    tokens: readonly number[],
    sampling: Sampling,
    signal: AbortSignal,
    onText: (text: string, completionTokens: number) => void,
  ): Promise<GenerationResult> {
    const last = await this.prefill(tokens.slice(this.sequence.nextTokenIndex), signal);
    const decoder = new TokenDecoder((some, before) =>
      this.model.detokenize(some as Token[], false, before as Token[]),
    );
    const scanner = new StopScanner(sampling.stops);
    const room = this.sequence.contextSize - tokens.length;
    const most = Math.min(sampling.maxTokens ?? room, room);
    let completionTokens = 0;
    let finish: GenerationResult['finish'] = 'stop';
    if (!signal.aborted) {
      for await (const token of this.sequence.evaluate(last, sampleOptions(sampling))) {
        if (signal.aborted) break;
        completionTokens++;
        onText(scanner.add(decoder.add(token)), completionTokens);
        if (scanner.stopped) break;
        if (completionTokens >= most) {
          finish = 'length';
          break;
        }
      }
    }
    const rest = scanner.add(decoder.flush()) + scanner.flush();
    if (!signal.aborted) onText(rest, completionTokens);
    return { finish: scanner.stopped ? 'stop' : finish, completionTokens };
  }

  /** Reads all but the last piece, which is left for the generation to start from. */
  private async prefill(tokens: readonly number[], signal: AbortSignal): Promise<Token[]> {
    let start = 0;
    while (tokens.length - start > PREFILL_PIECE_TOKENS && !signal.aborted) {
      const piece = tokens.slice(start, start + PREFILL_PIECE_TOKENS) as Token[];
      await this.sequence.evaluateWithoutGeneratingNewTokens(piece);
      start += PREFILL_PIECE_TOKENS;
    }
    return tokens.slice(start) as Token[];
  }
}

function sampleOptions({ temperature, topP, topK, minP, seed, ignoreEnd }: Sampling) {
  return { temperature, topP, topK, minP, seed, yieldEogToken: ignoreEnd };
}

/** llama.cpp with one model loaded: tokens, chat rendering, slots, embeddings. */
export class LlamaRuntime {
  private embedding: Promise<LlamaEmbeddingContext> | undefined;

  private constructor(
    private readonly model: LlamaModel,
    readonly slots: readonly LlamaSlot[],
    /** Most tokens of one request, prompt and answer. */
    readonly contextTokens: number,
    private readonly renderHistory: (history: ChatHistoryItem[]) => Token[],
    private readonly threads: number,
    private readonly disposeAll: () => Promise<void>,
  ) {}

  /**
   * Loads binding, model and context. Throws `ModelLoadError` when the file is no model that llama.cpp can run.
   * One thread unless asked otherwise: more of them spin against each other on a small machine and are hundreds of times slower.
   */
  static async load({
    modelFile,
    slots,
    contextTokens,
    threads,
    onProgress = () => {},
  }: RuntimeOptions): Promise<LlamaRuntime> {
    await checkModelFile(modelFile);
    const { getLlama, LlamaLogLevel, JinjaTemplateChatWrapper, ChatMLChatWrapper } =
      await import('node-llama-cpp');
    const llama = await getLlama({
      gpu: false,
      build: 'never',
      maxThreads: threads,
      logLevel: LlamaLogLevel.error,
      progressLogs: false,
    });
    let model: LlamaModel;
    try {
      model = await llama.loadModel({ modelPath: modelFile, onLoadProgress: inSteps(onProgress) });
    } catch (error) {
      await llama.dispose();
      throw new ModelLoadError(`llama.cpp cannot load ${modelFile}`, { cause: error });
    }
    const size = Math.min(contextTokens, model.trainContextSize);
    const context = await model.createContext({ contextSize: size, sequences: slots, threads });
    const template = model.fileInfo.metadata.tokenizer.chat_template;
    const wrapper =
      template === undefined
        ? new ChatMLChatWrapper()
        : new JinjaTemplateChatWrapper({ template, tokenizer: model.tokenizer });
    return new LlamaRuntime(
      model,
      Array.from({ length: slots }, () => new LlamaSlot(context.getSequence(), model)),
      Math.min(size, context.contextSize),
      (chatHistory) => wrapper.generateContextState({ chatHistory }).contextText.tokenize(model.tokenizer),
      threads,
      async () => {
        await model.dispose();
        await llama.dispose();
      },
    );
  }

  /** Tokens of a conversation with the assistant's turn opened, by the model's own template (ChatML when it has none). */
  renderChat(messages: readonly ChatMessage[]): number[] {
    const history = messages.map(({ role, text }): ChatHistoryItem => {
      if (role === 'assistant') return { type: 'model', response: [text] };
      return { type: role, text };
    });
    return this.withStart(this.renderHistory([...history, { type: 'model', response: [] }]));
  }

  /** Tokens of a plain prompt; special tokens written in it count as such, as vLLM and llama.cpp have it. */
  tokenize(text: string): number[] {
    return this.withStart(this.model.tokenize(text, true));
  }

  detokenize(tokens: readonly number[]): string {
    return this.model.detokenize(tokens as Token[], true);
  }

  /** True when every number is a token of this model. */
  knowsTokens(tokens: readonly number[]): boolean {
    const size = this.model.fileInfo.metadata.tokenizer.ggml.tokens.length;
    return tokens.every((token) => Number.isInteger(token) && token >= 0 && token < size);
  }

  /** The vector of a text. Throws when the model gives none. */
  async embed(tokens: readonly number[]): Promise<readonly number[]> {
    this.embedding ??= this.model.createEmbeddingContext({
      contextSize: Math.min(EMBEDDING_CONTEXT_TOKENS, this.model.trainContextSize),
      threads: this.threads,
    });
    const context = await this.embedding;
    const { vector } = await context.getEmbeddingFor(tokens as Token[]);
    if (vector.length === 0) throw new Error('the model gives no embeddings');
    return vector;
  }

  /** Most tokens that `embed` takes. */
  get embeddingTokens(): number {
    return Math.min(EMBEDDING_CONTEXT_TOKENS, this.model.trainContextSize);
  }

  dispose(): Promise<void> {
    return this.disposeAll();
  }

  private withStart(tokens: readonly Token[]): number[] {
    const { bos, shouldPrependBosToken } = this.model.tokens;
    if (!shouldPrependBosToken || bos === null || tokens[0] === bos) return [...tokens];
    return [bos, ...tokens];
  }
}

/** Loading is reported in steps of this many percent: a supervisor wants signs of life, not a flood. */
const PROGRESS_STEP_PERCENT = 10;

function inSteps(onProgress: (percent: number) => void): (share: number) => void {
  let reported = 0;
  return (share) => {
    const percent = Math.floor((share * 100) / PROGRESS_STEP_PERCENT) * PROGRESS_STEP_PERCENT;
    if (percent <= reported) return;
    reported = percent;
    onProgress(percent);
  };
}

/** GGUF versions that llama.cpp reads. */
const GGUF_VERSIONS = [2, 3];

/**
 * Refuses what is no GGUF file before anybody parses it: the reader of node-llama-cpp takes a garbage count for a count and
 * reads on for minutes.
 */
async function checkModelFile(modelFile: string): Promise<void> {
  let start: Buffer;
  try {
    start = await readStart(modelFile, 8);
  } catch (error) {
    throw new ModelLoadError(`cannot read the model file ${modelFile}`, { cause: error });
  }
  if (start.length < 8 || start.toString('latin1', 0, 4) !== 'GGUF') {
    throw new ModelLoadError(`${modelFile} is no GGUF file: invalid magic`);
  }
  const version = start.readUInt32LE(4);
  if (!GGUF_VERSIONS.includes(version)) {
    throw new ModelLoadError(
      `${modelFile} has GGUF version ${version}; expected ${GGUF_VERSIONS.join(' or ')}`,
    );
  }
}

async function readStart(file: string, bytes: number): Promise<Buffer> {
  const handle = await open(file);
  try {
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(bytes), 0, bytes, 0);
    return buffer.subarray(0, bytesRead);
  } finally {
    await handle.close();
  }
}
