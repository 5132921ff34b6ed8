/**
 * What a single value in the configuration can be: how it is read from a file, an environment variable or a flag,
 * how it is written back, and what to tell whoever wrote something else.
 */
import {
  DURATION_EXPECTED,
  SIZE_EXPECTED,
  formatDuration,
  formatShare,
  formatSize,
  parseDuration,
  parseShare,
  parseSize,
  type Parsed,
} from './units.js';

/** A scalar as found. */
export interface ScalarInput {
  /** The value with its YAML type; always text when it comes from the environment or a flag. */
  readonly value: unknown;
  /** Exactly what was written. */
  readonly raw: string;
  /** False for environment and flags, where everything is text and nothing can be quoted. */
  readonly typed: boolean;
  /** Whether it stood in quotes. */
  readonly quoted: boolean;
}

export type JsonSchema = { readonly [key: string]: unknown };

export interface ScalarKind {
  /** One word for the documentation's type column. */
  readonly name: string;
  /** Completes "expected ...". */
  readonly expected: string;
  read(input: ScalarInput): Parsed<unknown>;
  /** The value as it is written in a file. */
  write(value: unknown): string | number | boolean;
  readonly schema: JsonSchema;
}

const mismatch = (expected: string, input: ScalarInput): Parsed<never> => ({
  ok: false,
  problem: `expected ${expected}, got ${describeScalar(input)}`,
});

/** A found scalar in words: `the number 8`, `"two"`, `nothing`. */
export function describeScalar({ value, raw }: ScalarInput): string {
  if (value === null || value === undefined) return 'nothing';
  if (typeof value === 'number' || typeof value === 'bigint') return `the number ${raw}`;
  if (typeof value === 'boolean') return `the boolean ${raw}`;
  const text = typeof value === 'string' ? value : raw;
  return `"${text.length > 80 ? `${text.slice(0, 77)}...` : text}"`;
}

/** Dates and times are text in YAML 1.2 but dates in 1.1 and in many tools: quoting removes the doubt. */
const LOOKS_LIKE_A_DATE = /^\d{4}-\d{1,2}-\d{1,2}([Tt ].*)?$/;

/** Text of a special form; `quotable: false` where quoting a number would not make it right. */
export function textKind(name: string, expected: string, quotable: boolean): ScalarKind {
  return {
    name,
    expected,
    read(input) {
      if (input.value === null || input.value === undefined) return mismatch(expected, input);
      const hint = quotable ? `; quote it: "${input.raw}"` : '';
      if (typeof input.value !== 'string') {
        return { ok: false, problem: `expected ${expected}, got ${describeScalar(input)}${hint}` };
      }
      if (input.typed && !input.quoted && LOOKS_LIKE_A_DATE.test(input.value)) {
        return { ok: false, problem: `expected ${expected}, got the date ${input.raw}${hint}` };
      }
      return { ok: true, value: input.value };
    },
    write: (value) => String(value),
    schema: { type: 'string' },
  };
}

export const TEXT = textKind('text', 'text', true);
/** Where an object may stand as well. */
export const TEXT_OR_FILE = textKind('text', 'text or { fromFile: PATH }', true);

export const TOGGLE: ScalarKind = {
  name: 'boolean',
  expected: 'true or false',
  read(input) {
    if (typeof input.value === 'boolean') return { ok: true, value: input.value };
    if (!input.typed && (input.raw === 'true' || input.raw === 'false')) {
      return { ok: true, value: input.raw === 'true' };
    }
    return mismatch('true or false', input);
  },
  write: (value) => value === true,
  schema: { type: 'boolean' },
};

function numberKind(name: string, expected: string, pattern: RegExp, schema: JsonSchema): ScalarKind {
  return {
    name,
    expected,
    read(input) {
      if (typeof input.value === 'number' && Number.isFinite(input.value)) {
        if (name === 'number' || Number.isSafeInteger(input.value)) return { ok: true, value: input.value };
      }
      if (!input.typed && pattern.test(input.raw)) return { ok: true, value: Number(input.raw) };
      const hint = input.quoted && pattern.test(input.raw) ? '; leave out the quotes' : '';
      return { ok: false, problem: `expected ${expected}, got ${describeScalar(input)}${hint}` };
    },
    write: (value) => Number(value),
    schema,
  };
}

export const WHOLE = numberKind('integer', 'a whole number', /^-?\d{1,15}$/, { type: 'integer' });
export const NUMBER = numberKind('number', 'a number', /^-?\d{1,15}(\.\d{1,15})?$/, { type: 'number' });

/** Quantities with a unit are text in the file; what they mean is in `units.ts`. */
function quantityKind(
  name: string,
  expected: string,
  parse: (text: string) => Parsed<number>,
  format: (value: number) => string,
  pattern: string,
): ScalarKind {
  return {
    name,
    expected,
    read(input) {
      if (input.value === null || input.value === undefined) return mismatch(expected, input);
      return parse(typeof input.value === 'string' ? input.value.trim() : input.raw);
    },
    write: (value) => format(Number(value)),
    schema: { type: 'string', pattern },
  };
}

export const DURATION = quantityKind(
  'duration',
  DURATION_EXPECTED,
  parseDuration,
  formatDuration,
  String.raw`^(\d+(\.\d+)?(ms|[smhd]))+$`,
);
export const SIZE = quantityKind(
  'size',
  SIZE_EXPECTED,
  parseSize,
  formatSize,
  String.raw`^\d+(\.\d+)? ?([KMGT]i?B|B)$`,
);
export const SHARE = quantityKind(
  'percentage',
  'a percentage such as 20%',
  parseShare,
  formatShare,
  String.raw`^\d+(\.\d+)? ?%$`,
);
