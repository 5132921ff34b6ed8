import { mix } from './hashing.js';

/** Why an answer ended, in OpenAI's words. */
export type FinishReason = 'stop' | 'length' | 'tool_calls';

/** A call the answer makes instead of saying something; `argumentPieces` joined are its JSON arguments. */
export interface ToolCall {
  readonly id: string;
  readonly name: string;
  readonly argumentPieces: readonly string[];
}

/** What an answer will be, known before its first token is due. */
export interface Answer {
  /** Output tokens; each is one piece of text, or one piece of the tool call's arguments. */
  readonly tokens: number;
  readonly finish: FinishReason;
  readonly toolCall: ToolCall | undefined;
  /** Piece `index` of the text with JSON's escapes, without quotes. */
  escapedPiece(index: number): string;
  /** The whole text; empty for a tool call. */
  text(): string;
}

export interface AnswerPlan {
  /** Comes from engine seed, prompt and the request's seed: the same state gives the same text. */
  readonly state: number;
  /** Exactly this many tokens, unless a stop string comes first. */
  readonly tokens: number;
  readonly finish: FinishReason;
  readonly stop: readonly string[];
}

const WORDS = (
  'the gateway request engine replica node shard prompt token cache prefix stream router agent queue slot weight load ' +
  'answer client model profile label probe drain plan term lease record budget deadline event byte frame header chunk ' +
  'a an one two three many few each every some any other next last first warm cold fast slow full empty open closed ' +
  'ready busy idle steady even odd quiet loud near far left right above below early late often never always again soon ' +
  'reads writes sends takes gives holds keeps drops counts waits starts stops grows shrinks moves turns asks tells shows ' +
  'is was has had can may will must should and or but so then when while until after before from into over under with ' +
  'morning evening river stone glass paper copper silver garden window bridge harbour market letter number signal'
).split(' ');

/** Characters of two, three and four bytes and ones that JSON escapes: what a gateway can break when it cuts text apart. */
const HARD_WORDS = ['naïve', '日本語', '🙂🚀', '"quoted"', 'Größe', 'back\\slash', 'line\nbreak', 'مرحبا'];

/** One word in this many is a hard one, so that short answers hold some too. */
const HARD_EVERY = 8;

const plain = WORDS.map((word) => ` ${word}`);
const hard = HARD_WORDS.map((word) => ` ${word}`);
const escape = (text: string) => JSON.stringify(text).slice(1, -1);
const plainEscaped = plain.map(escape);
const hardEscaped = hard.map(escape);

function pick(
  state: number,
  index: number,
  plainWords: readonly string[],
  hardWords: readonly string[],
): string {
  const words = index % HARD_EVERY === HARD_EVERY - 3 ? hardWords : plainWords;
  return words[mix(state, index) % words.length] ?? '';
}

/** Makes the answer of a plan. Pieces are computed when asked for: a long answer costs nothing until it is sent. */
export function planAnswer(plan: AnswerPlan): Answer {
  const piece = (index: number) => pick(plan.state, index, plain, hard);
  const whole = (tokens: number) => Array.from({ length: tokens }, (_, index) => piece(index)).join('');
  const cut = plan.stop.length === 0 ? undefined : findStop(whole(plan.tokens), plan.stop);
  if (cut === undefined) {
    let text: string | undefined;
    return {
      tokens: plan.tokens,
      finish: plan.finish,
      toolCall: undefined,
      escapedPiece: (index) => pick(plan.state, index, plainEscaped, hardEscaped),
      text: () => (text ??= whole(plan.tokens)),
    };
  }
  const pieces = cutPieces(piece, cut);
  return {
    tokens: pieces.length,
    finish: 'stop',
    toolCall: undefined,
    escapedPiece: (index) => escape(pieces[index] ?? ''),
    text: () => pieces.join(''),
  };
}

/** Where the earliest stop string begins. */
function findStop(text: string, stop: readonly string[]): number | undefined {
  const places = stop.filter((word) => word !== '').map((word) => text.indexOf(word));
  const found = places.filter((place) => place >= 0);
  return found.length === 0 ? undefined : Math.min(...found);
}

/** The pieces that make the first `length` UTF-16 units; an engine counts the token that completed the stop string too. */
function cutPieces(piece: (index: number) => string, length: number): string[] {
  const pieces: string[] = [];
  let missing = length;
  for (let index = 0; missing > 0; index++) {
    const text = piece(index).slice(0, missing);
    pieces.push(text);
    missing -= text.length;
  }
  return pieces.length === 0 ? [''] : pieces;
}

/** A deterministic call of a tool: arguments are valid JSON, cut at places that split escapes and characters' runs. */
export function planToolCall(state: number, name: string): Answer {
  const query = Array.from({ length: 6 }, (_, index) => pick(state, index, plain, hard))
    .join('')
    .trim();
  const json = JSON.stringify({ query, limit: mix(state, 99) % 10 });
  const argumentPieces: string[] = [];
  for (let at = 0; at < json.length; at += 5) argumentPieces.push(json.slice(at, at + 5));
  return {
    tokens: argumentPieces.length,
    finish: 'tool_calls',
    toolCall: {
      id: `call_${state.toString(16).padStart(8, '0')}`,
      name,
      argumentPieces: repairPairs(argumentPieces),
    },
    escapedPiece: (index) => escape(argumentPieces[index] ?? ''),
    text: () => '',
  };
}

/** Moves a high surrogate that ended a piece to the next one: half a pair cannot be written as UTF-8. */
function repairPairs(pieces: string[]): string[] {
  for (let index = 0; index + 1 < pieces.length; index++) {
    const piece = pieces[index] ?? '';
    const last = piece.charCodeAt(piece.length - 1);
    if (last < 0xd800 || last > 0xdbff) continue;
    pieces[index] = piece.slice(0, -1);
    pieces[index + 1] = piece.slice(-1) + (pieces[index + 1] ?? '');
  }
  return pieces;
}
