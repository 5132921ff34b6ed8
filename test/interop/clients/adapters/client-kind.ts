/** The three client APIs through which text is asked for. */
export type TextApi = 'chat' | 'responses' | 'messages';

/** One request in words that every client library can express. */
export interface Question {
  readonly prompt: string;
  readonly maxTokens?: number;
  /** Ignored where the API has no seed. */
  readonly seed?: number;
  /** Offers the tool `lookup`; the simulated engine calls it when the prompt says so. */
  readonly tool?: boolean;
  /** Asks for token counts, where a client leaves the choice. */
  readonly usage?: boolean;
  readonly signal?: AbortSignal;
}

/** What a client library made of the answer. */
export interface Told {
  readonly text: string;
  readonly toolCalls: readonly { readonly name: string; readonly args: unknown }[];
  readonly usage: { readonly prompt: number; readonly completion: number } | undefined;
  /** Chunks without any choice that the library handed on; undefined where it does not hand chunks on. */
  readonly chunksWithoutChoice?: number;
}

/** A client library, set up for one gateway and one model. */
export interface TextClient {
  whole(question: Question): Promise<Told>;
  /** Rejects when the library reports an error in any form: thrown, as a part or as an event. */
  stream(question: Question, onText?: (text: string) => void): Promise<Told>;
}

export interface ClientSetup {
  /** `http://host:port` of the gateway. */
  readonly gateway: string;
  readonly model: string;
  /** Retries by the library itself; its own default when left out. */
  readonly retries?: number;
  /** What the library uses instead of the global `fetch`, so that a spec sees every try. */
  readonly fetch?: typeof fetch;
}

/** One way in which applications use one library. */
export interface ClientKind {
  readonly name: string;
  readonly api: TextApi;
  /** The library leaves it to its caller whether a stream ends with token counts. */
  readonly usageByChoice: boolean;
  /** Obeys `x-should-retry`. */
  readonly obeysShouldRetry: boolean;
  /** Tries again after an error event on a 200 that comes before anything of the answer; the others never do. */
  readonly repeatsErrorEvents: boolean;
  open(setup: ClientSetup): Promise<TextClient>;
}

/** A credential that must never reach an engine. */
export const CLIENT_SECRET = 'sk-client-secret-7d1f';

/** JSON schema of the arguments that the simulated engine gives to any tool. */
export const LOOKUP_SCHEMA = {
  type: 'object' as const,
  properties: { query: { type: 'string' as const }, limit: { type: 'number' as const } },
  required: ['query', 'limit'],
};
