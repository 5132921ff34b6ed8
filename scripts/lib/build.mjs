/** The compiled program in dist/, rebuilt when a source changed. */
import { chmodSync, existsSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT, runPackage } from './run.mjs';
import { clearStamp, filesBelow, fingerprint, readStamp, writeStamp } from './stamp.mjs';

const DIST = join(ROOT, 'dist');
const STAMP = join(DIST, '.llmgw-build.json');
const MAIN = join(DIST, 'main.js');

function sources() {
  const settings = ['package.json', 'nest-cli.json', 'tsconfig.json', 'tsconfig.build.json'];
  return [...settings, ...filesBelow('src').filter((file) => !file.endsWith('.spec.ts'))];
}

/** Builds when needed. @param {{ force?: boolean }} [options] */
export async function ensureBuilt(options = {}) {
  const files = sources();
  const wanted = fingerprint(files);
  const last = readStamp(STAMP);
  if (!options.force && last.fingerprint === wanted && existsSync(MAIN)) return;
  console.error('building ...');
  clearStamp(STAMP);
  // The compiler never removes: what a deleted source left behind could still be loaded.
  const present = new Set(files);
  if (last.files?.some((file) => !present.has(file)) ?? true) rmSync(DIST, { recursive: true, force: true });
  await runPackage('@nestjs/cli/bin/nest.js', ['build'], { what: 'nest build' });
  chmodSync(MAIN, 0o755);
  writeStamp(STAMP, { fingerprint: wanted, files });
}
