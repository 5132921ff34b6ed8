import { createHash } from 'node:crypto';
import { StoreError, type Collection } from './ports.js';

/** A record as it lies in the database. */
export interface Row {
  readonly collection: Collection;
  readonly key: string;
  /** JSON. */
  readonly value: string;
  readonly checksum: string;
}

/**
 * Checksum of a row. SQLite notices a broken page structure but not a flipped byte inside a value, and a flipped digit
 * in a generation or a port would be believed. Collection and key are part of it, so that rows cannot swap places.
 */
export function rowChecksum(collection: string, key: string, value: string): string {
  return createHash('sha256').update(`${collection}\0${key}\0${value}`).digest('hex').slice(0, 16);
}

export function encodeRow(collection: Collection, key: string, value: unknown): Row {
  const json = JSON.stringify(value);
  // JSON.stringify(undefined) is undefined: a programmer's mistake that must not become an empty row.
  if (json === undefined)
    throw new TypeError(`${collection}/${key}: a value that is no JSON cannot be stored`);
  return { collection, key, value: json, checksum: rowChecksum(collection, key, json) };
}

/** The value of a row; throws `corrupt` when it is not what was written. */
export function decodeRow(row: Row): unknown {
  if (rowChecksum(row.collection, row.key, row.value) !== row.checksum) {
    throw new StoreError('corrupt', `record ${row.collection}/${row.key} does not match its checksum`);
  }
  return JSON.parse(row.value);
}
