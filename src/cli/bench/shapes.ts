/** What the requests of a load test look like. The same seed and number give the same request on every machine. */
import { seededRandom, type Random } from '../../shared/random.js';

/** What one request asks. */
export interface Ask {
  readonly messages: readonly { readonly role: 'system' | 'user' | 'assistant'; readonly content: string }[];
  readonly maxTokens: number;
}

/** Each shape with what it is for; shown in the help. */
export const SHAPES = {
  chat: 'short questions, answers of 50 to 200 tokens',
  long: 'prompts of 4,000 to 8,000 words, short answers: prefill',
  generate: 'short prompts, answers of 500 to 1,000 tokens: decode',
  'shared-prefix': 'eight long system prompts with different questions: prefix caches',
  conversation: 'sessions of four turns, each with the whole history so far',
  mixed: 'all of the above: chat half of the time',
} as const;
export type ShapeName = keyof typeof SHAPES;

export const isShape = (name: string): name is ShapeName => Object.hasOwn(SHAPES, name);

/** Shared prefixes of `shared-prefix`. */
const PREFIXES = 8;
/** Turns of a session of `conversation`. */
const TURNS = 4;

/** Request number `index` (from 0) of a run. */
export function ask(shape: ShapeName, index: number, seed: number): Ask {
  const random = seededRandom(hash(seed, index));
  switch (shape) {
    case 'chat':
      return {
        messages: [user(words(random, between(random, 10, 60)))],
        maxTokens: between(random, 50, 200),
      };
    case 'long':
      return {
        messages: [user(words(random, between(random, 4_000, 8_000)))],
        maxTokens: between(random, 20, 60),
      };
    case 'generate':
      return { messages: [user(words(random, 20))], maxTokens: between(random, 500, 1_000) };
    case 'shared-prefix':
      return sharedPrefix(random, seed);
    case 'conversation':
      return conversation(index, seed);
    case 'mixed':
      return ask(mixedShape(random()), index, seed);
  }
}

function mixedShape(at: number): ShapeName {
  if (at < 0.5) return 'chat';
  if (at < 0.6) return 'long';
  if (at < 0.7) return 'generate';
  return at < 0.85 ? 'shared-prefix' : 'conversation';
}

function sharedPrefix(random: Random, seed: number): Ask {
  const which = Math.floor(random() * PREFIXES);
  const system = words(seededRandom(hash(seed, -1 - which)), 1_500);
  return {
    messages: [{ role: 'system', content: system }, user(words(random, between(random, 10, 40)))],
    maxTokens: between(random, 30, 100),
  };
}

/** Turn `index % TURNS` of a session: its history is made from the session's own numbers, so it is a true prefix. */
function conversation(index: number, seed: number): Ask {
  const session = Math.floor(index / TURNS);
  const messages: Ask['messages'][number][] = [];
  for (let turn = 0; turn <= index % TURNS; turn++) {
    const random = seededRandom(hash(seed, session * TURNS + turn + 1e9));
    if (turn > 0) messages.push({ role: 'assistant', content: words(random, 80) });
    messages.push(user(words(random, 40)));
  }
  return { messages, maxTokens: 80 };
}

const user = (content: string) => ({ role: 'user', content }) as const;
const between = (random: Random, from: number, to: number): number =>
  from + Math.floor(random() * (to - from + 1));
const hash = (seed: number, index: number): number =>
  Math.imul(seed ^ 0x9e3779b9, 0x85ebca6b) ^ Math.imul(index, 0xc2b2ae35);

const VOCABULARY =
  'time year people way day thing world life hand part child eye place work week case point number group problem fact water light sound paper letter window river mountain garden kitchen engine signal'.split(
    ' ',
  );

function words(random: Random, count: number): string {
  return Array.from({ length: count }, () => VOCABULARY[Math.floor(random() * VOCABULARY.length)]).join(' ');
}
