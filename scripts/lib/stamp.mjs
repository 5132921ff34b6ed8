/** Stamps say what a piece of work was done for; equal content needs no second run. */
import { createHash } from 'node:crypto';
import { existsSync, lstatSync, readFileSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { ROOT } from './run.mjs';

/**
 * All files below a path of the project, in a fixed order; the path itself when it is a file.
 * @param {string} path
 * @returns {string[]}
 */
export function filesBelow(path) {
  const full = join(ROOT, path);
  if (!existsSync(full)) return [];
  if (!lstatSync(full).isDirectory()) return [path];
  return readdirSync(full)
    .sort()
    .flatMap((name) => filesBelow(join(path, name)));
}

/**
 * One hash over names and contents, so that neither clocks nor checkouts matter.
 * @param {readonly string[]} files @param {readonly string[]} [facts]
 */
export function fingerprint(files, facts = []) {
  const hash = createHash('sha256');
  for (const fact of facts) hash.update(`${fact}\0`);
  for (const file of files) {
    hash.update(`${relative('.', file)}\0`);
    hash.update(readFileSync(join(ROOT, file)));
    hash.update('\0');
  }
  return hash.digest('hex');
}

/**
 * @param {string} file
 * @returns {{ fingerprint?: string, files?: string[] }}
 */
export function readStamp(file) {
  try {
    return JSON.parse(readFileSync(file, 'utf8'));
  } catch {
    return {};
  }
}

/** Removed before work begins and written after it ended well: work that was killed leaves none. */
export function clearStamp(file) {
  rmSync(file, { force: true });
}

/** @param {string} file @param {{ fingerprint: string, files?: string[] }} stamp */
export function writeStamp(file, stamp) {
  writeFileSync(`${file}.new`, JSON.stringify(stamp));
  renameSync(`${file}.new`, file);
}
