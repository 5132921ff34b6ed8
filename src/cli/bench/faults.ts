/** Faults of a load test: what the client does wrong on purpose, and what simulated engines are told to do wrong. */
import { parseShare } from '../../config/units.js';
import type { Random } from '../../shared/random.js';
import { usageError } from '../llmgw-command.js';

/** What is made of one request. */
export interface Misbehaviour {
  /** Leave after so many events with text. */
  readonly cancelAfterTokens?: number;
  /** Pause so long after each piece that is read, ms. */
  readonly readPauseMs?: number;
  /** Put before the prompt; simulated engines play it. */
  readonly directive?: string;
}

export interface PlannedFault {
  readonly share: number;
  readonly does: Misbehaviour;
}

/** Share of the requests that get a fault whose spec names none. */
const DEFAULT_SHARE = 0.1;
const DEFAULT_CANCEL_TOKENS = 5;
const DEFAULT_PAUSE_MS = 200;

/**
 * Reads `cancel=5@10%;slow-reader=200@5%;reset-after-events=3@1%`: name, argument, share of requests. `cancel` and
 * `slow-reader` are the client's own, every other name is a fault of the simulated engine.
 */
export function parseFaultPlan(text: string): readonly PlannedFault[] {
  const faults = text
    .split(';')
    .map((part) => part.trim())
    .filter((part) => part !== '')
    .map(parseFault);
  const sum = faults.reduce((total, { share }) => total + share, 0);
  if (sum > 1) throw usageError(`--faults: the shares add up to more than 100%`);
  return faults;
}

function parseFault(text: string): PlannedFault {
  const at = text.lastIndexOf('@');
  const spec = at < 0 ? text : text.slice(0, at);
  const share = at < 0 ? ({ ok: true, value: DEFAULT_SHARE } as const) : parseShare(text.slice(at + 1));
  if (!share.ok) throw usageError(`--faults '${text}': ${share.problem}`);
  const [, name, argument] = /^([a-z0-9-]+)(?:=(.+))?$/.exec(spec) ?? [];
  if (name === undefined) throw usageError(`--faults '${text}': expected NAME[=ARGUMENT][@SHARE%]`);
  return { share: share.value, does: behaviour(name, argument, spec) };
}

function behaviour(name: string, argument: string | undefined, spec: string): Misbehaviour {
  if (name === 'cancel') return { cancelAfterTokens: numberOf(argument, DEFAULT_CANCEL_TOKENS, spec) };
  if (name === 'slow-reader') return { readPauseMs: numberOf(argument, DEFAULT_PAUSE_MS, spec) };
  return { directive: `[[fault:${spec}]]` };
}

function numberOf(text: string | undefined, fallback: number, spec: string): number {
  const value = text === undefined ? fallback : Number(text);
  if (!Number.isInteger(value) || value < 0) throw usageError(`--faults '${spec}': expected a whole number`);
  return value;
}

/** What the next request does wrong; nothing, mostly. */
export function pickFault(faults: readonly PlannedFault[], random: Random): Misbehaviour {
  let at = random();
  for (const { share, does } of faults) {
    if (at < share) return does;
    at -= share;
  }
  return NOTHING_WRONG;
}

const NOTHING_WRONG: Misbehaviour = {};
