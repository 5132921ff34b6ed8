/**
 * `npm test`: installs and builds what is out of date, then runs every check, also after one has failed, and ends with a
 * line that says how it went. Names of checks as arguments run only those: `npm test -- unit e2e`.
 */
import { ensureBuilt } from './lib/build.mjs';
import { ensureInstalled } from './lib/install.mjs';
import { ProgramFailed, requireNode, runPackage } from './lib/run.mjs';

// In CI mode vitest writes no snapshot: generated documents must be there and equal.
const TESTS = { env: { CI: 'true' } };

const CHECKS = [
  { name: 'build', run: () => ensureBuilt() },
  {
    name: 'format',
    run: () => runPackage('prettier/bin/prettier.cjs', ['--check', '--log-level=warn', '.']),
  },
  { name: 'lint', run: () => runPackage('oxlint/bin/oxlint', ['--type-aware', '--quiet']) },
  { name: 'types', run: () => runPackage('typescript/bin/tsc', ['--noEmit', '-p', 'tsconfig.json']) },
  { name: 'unit', run: () => runPackage('vitest/vitest.mjs', ['run', '--project', 'unit'], TESTS) },
  { name: 'e2e', run: () => runPackage('vitest/vitest.mjs', ['run', '--project', 'e2e'], TESTS) },
];

requireNode();
const asked = process.argv.slice(2);
const unknown = asked.filter((name) => !CHECKS.some((check) => check.name === name));
if (unknown.length > 0) {
  console.error(
    `unknown check ${unknown.join(', ')}; known are ${CHECKS.map(({ name }) => name).join(', ')}`,
  );
  process.exit(2);
}

const results = [];
await check('install', ensureInstalled);
if (results[0].ok) {
  for (const { name, run } of CHECKS) {
    // End-to-end tests run what was built, whatever else was asked for.
    const needed = name === 'build' && asked.includes('e2e');
    if (asked.length === 0 || asked.includes(name) || needed) await check(name, run);
  }
}
const failed = results.filter(({ ok }) => !ok).map(({ name }) => name);
for (const { name, ok, seconds } of results) {
  console.log(`${ok ? 'ok    ' : 'FAILED'}  ${name.padEnd(8)}  ${seconds.toFixed(1)} s`);
}
const total = results.reduce((sum, { seconds }) => sum + seconds, 0);
const verdict = failed.length === 0 ? 'all passed' : `FAILED: ${failed.join(', ')}`;
console.log(
  `npm test: ${results.length - failed.length} of ${results.length} checks passed in ${total.toFixed(0)} s; ${verdict}`,
);
process.exit(failed.length === 0 ? 0 : 1);

async function check(name, run) {
  console.log(`--- ${name}`);
  const startedMs = performance.now();
  let ok = true;
  try {
    await run();
  } catch (error) {
    ok = false;
    console.error(error instanceof ProgramFailed ? error.message : error);
  }
  results.push({ name, ok, seconds: (performance.now() - startedMs) / 1_000 });
}
