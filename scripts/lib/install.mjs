/** Packages: installed when the lock changed, and rid of what this platform never uses. */
import { existsSync, lstatSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT, run } from './run.mjs';
import { clearStamp, fingerprint, readStamp, writeStamp } from './stamp.mjs';

const MODULES = join(ROOT, 'node_modules');
const STAMP = join(MODULES, '.llmgw-install.json');

/** Installs when needed. Native packages depend on platform and Node's ABI as well as on the lock. */
export async function ensureInstalled() {
  // A linked folder belongs to somebody else: `npm ci` would empty it under his feet.
  if (existsSync(MODULES) && lstatSync(MODULES).isSymbolicLink()) return;
  const facts = [process.platform, process.arch, process.versions.modules];
  const wanted = fingerprint(['package-lock.json', 'package.json'], facts);
  if (readStamp(STAMP).fingerprint === wanted) return;
  console.error('installing packages; this takes a minute or two the first time ...');
  clearStamp(STAMP);
  await npm(['ci', '--loglevel=error', '--no-audit', '--no-fund']);
  slim();
  writeStamp(STAMP, { fingerprint: wanted });
}

/** The npm that runs this script, or the one in PATH. */
function npm(args) {
  const script = process.env.npm_execpath;
  // Where no ready-made binary can be fetched, better-sqlite3 is compiled: on all cores instead of one.
  const options = { what: `npm ${args[0]}`, stdout: 'ignore', env: { JOBS: 'max' } };
  if (script !== undefined && /\.c?js$/.test(script))
    return run(process.execPath, [script, ...args], options);
  return run(process.platform === 'win32' ? 'npm.cmd' : 'npm', args, options);
}

/**
 * Sources that packages carry for the case that they must be compiled, and what compiling left behind: half of the
 * folder's size, never read once the binaries are there.
 */
const NEVER_USED = [
  'node-llama-cpp/llama/gitRelease.bundle',
  'better-sqlite3/deps',
  'better-sqlite3/build/Release/obj',
  'better-sqlite3/build/Release/obj.target',
  'better-sqlite3/build/Release/.deps',
  'better-sqlite3/build/Release/sqlite3.a',
  'better-sqlite3/build/Release/test_extension.node',
];

function slim() {
  for (const path of NEVER_USED) rmSync(join(MODULES, path), { recursive: true, force: true });
  const binaries = join(MODULES, '@node-llama-cpp');
  if (!existsSync(binaries)) return;
  const os = { linux: 'linux', darwin: 'mac', win32: 'win' }[process.platform];
  for (const name of readdirSync(binaries)) {
    const ours =
      name.startsWith(`${os}-${process.arch}`) || (process.arch === 'arm' && name === `${os}-armv7l`);
    if (!ours) rmSync(join(binaries, name), { recursive: true, force: true });
  }
}
