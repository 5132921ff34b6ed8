/** Checks on values that came over the wire. Each throws a {@link ProtocolError} that names the field. */

import { CONTROL, ID_LIMIT_CHARS } from './message-limits.js';

/** Why a message was not taken. */
export type ProtocolProblemCode =
  'missing' | 'notANumber' | 'negative' | 'tooLarge' | 'tooLong' | 'tooMany' | 'duplicate' | 'malformed';

export class ProtocolError extends Error {
  override readonly name = 'ProtocolError';
  constructor(
    readonly code: ProtocolProblemCode,
    /** Path of the field, e.g. `report.gpus[2].memoryUsedBytes`. */
    readonly field: string,
    message: string,
  ) {
    super(`${field}: ${message}`);
  }
}

/** Longest sentence kept from an agent. */
const TEXT_LIMIT_CHARS = 4_096;
const PORT_MAX = 65_535;

/** A whole number from 0 up to 2^53-1, given as number or decimal string. */
export function count(value: unknown, field: string): number {
  const number = typeof value === 'string' && /^-?\d+$/.test(value) ? Number(value) : value;
  if (typeof number !== 'number' || !Number.isInteger(number)) {
    // Infinity and NaN end here too.
    throw new ProtocolError('notANumber', field, `expected a whole number, got ${shown(value)}`);
  }
  if (number < 0) throw new ProtocolError('negative', field, `expected 0 or more, got ${shown(value)}`);
  if (number > Number.MAX_SAFE_INTEGER) {
    throw new ProtocolError('tooLarge', field, `${shown(value)} is beyond what can be counted exactly`);
  }
  return number;
}

/** {@link count}, where absent means unknown. */
export function optionalCount(value: unknown, field: string): number | undefined {
  return value === undefined || value === null ? undefined : count(value, field);
}

/** A whole number that may be negative, within 32 bits (exit codes). */
export function optionalInt(value: unknown, field: string): number | undefined {
  if (value === undefined || value === null) return undefined;
  if (typeof value !== 'number' || !Number.isInteger(value) || Math.abs(value) > 2 ** 31) {
    throw new ProtocolError('notANumber', field, `expected a whole number, got ${shown(value)}`);
  }
  return value;
}

/** A TCP port, 1 to 65535; 0 stands for none on the wire. */
export function optionalPort(value: unknown, field: string): number | undefined {
  const port = count(value ?? 0, field);
  if (port > PORT_MAX) throw new ProtocolError('tooLarge', field, `${port} is not a port`);
  return port === 0 ? undefined : port;
}

/** A short text without control characters; required. */
export function identifier(value: unknown, field: string): string {
  const text = optionalIdentifier(value, field);
  if (text === undefined) throw new ProtocolError('missing', field, 'expected a name, got nothing');
  return text;
}

export function optionalIdentifier(value: unknown, field: string): string | undefined {
  if (value === undefined || value === null || value === '') return undefined;
  if (typeof value !== 'string') throw new ProtocolError('malformed', field, 'expected text');
  if (value.length > ID_LIMIT_CHARS) {
    throw new ProtocolError(
      'tooLong',
      field,
      `${value.length} characters, at most ${ID_LIMIT_CHARS} are taken`,
    );
  }
  if (CONTROL.test(value)) throw new ProtocolError('malformed', field, 'control characters are not taken');
  return value;
}

/** Free text for people. Never refused for its length: losing a report over a long sentence would be absurd; it is cut. */
export function optionalText(value: unknown, field: string): string | undefined {
  if (value === undefined || value === null || value === '') return undefined;
  if (typeof value !== 'string') throw new ProtocolError('malformed', field, 'expected text');
  return value.length > TEXT_LIMIT_CHARS ? `${value.slice(0, TEXT_LIMIT_CHARS)}…` : value;
}

export function flag(value: unknown, field: string): boolean {
  if (typeof value !== 'boolean') throw new ProtocolError('malformed', field, 'expected true or false');
  return value;
}

/** Every element through `parse`, at most `limit` of them. */
export function list<T>(
  value: unknown,
  field: string,
  limit: number,
  parse: (item: unknown, field: string) => T,
): T[] {
  if (value === undefined || value === null) return [];
  if (!Array.isArray(value)) throw new ProtocolError('malformed', field, 'expected a list');
  if (value.length > limit) {
    throw new ProtocolError('tooMany', field, `${value.length} entries, at most ${limit} are taken`);
  }
  return value.map((item, index) => parse(item, `${field}[${index}]`));
}

/** Refuses a list in which two elements have the same key: which of them would be the truth? */
export function unique<T>(items: readonly T[], field: string, key: (item: T) => string): readonly T[] {
  const seen = new Set<string>();
  for (const item of items) {
    if (seen.has(key(item))) throw new ProtocolError('duplicate', field, `${key(item)} is listed twice`);
    seen.add(key(item));
  }
  return items;
}

/** A map of texts, at most `limit` entries. */
export function textMap(value: unknown, field: string, limit: number): Record<string, string> {
  const entries = Object.entries(record(value ?? {}, field));
  if (entries.length > limit) {
    throw new ProtocolError('tooMany', field, `${entries.length} entries, at most ${limit} are taken`);
  }
  // Null prototype: a label called __proto__ is a label.
  const result = Object.create(null) as Record<string, string>;
  for (const [key, text] of entries) {
    result[identifier(key, `${field} key`)] = optionalIdentifier(text, `${field}.${key}`) ?? '';
  }
  return result;
}

export function record(value: unknown, field: string): Record<string, unknown> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new ProtocolError('malformed', field, 'expected a message');
  }
  return value as Record<string, unknown>;
}

/** The value as it may stand in an error message. */
function shown(value: unknown): string {
  return String(value).slice(0, 40);
}
