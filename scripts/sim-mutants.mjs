// Switches the planted bugs of test/sim/mutants.ts on, one after another, and prints which the simulator found and how. A bug's
// run ends at its first finding.
// `npm run sim:mutants [-- NAME-PART] [--seeds N]`
import { execFile } from 'node:child_process';
import { rmSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { pathToFileURL } from 'node:url';
import { compileGraph } from './run-ts.mjs';

const args = process.argv.slice(2);
const seedsAt = args.indexOf('--seeds');
// The rarest bug shows in about one history of a hundred and fifty.
const seeds = seedsAt < 0 ? '1000' : args.splice(seedsAt, 2)[1];
const wanted = args[0] ?? '';

const list = compileGraph('test/sim/mutants.ts');
const { MUTANTS } = await import(pathToFileURL(list.entry).href);
rmSync(list.folder, { recursive: true, force: true });

const startedMs = performance.now();
const waiting = MUTANTS.filter(({ name }) => name.includes(wanted));
const total = waiting.length;
let missed = 0;
await Promise.all(Array.from({ length: availableParallelism() }, worker));
console.log(
  `${total - missed} of ${total} planted bugs found in ${((performance.now() - startedMs) / 1000).toFixed(0)} s`,
);
process.exitCode = missed === 0 && total > 0 ? 0 : 1;

async function worker() {
  for (let mutant = waiting.shift(); mutant !== undefined; mutant = waiting.shift()) {
    const outcome = await run(mutant);
    if (!outcome.found) missed += 1;
    console.log(`${outcome.found ? 'found ' : 'MISSED'}  ${mutant.name.padEnd(62)} ${outcome.how}`);
  }
}

async function run(mutant) {
  let planted = false;
  const { folder, entry } = compileGraph('test/sim/main.ts', (path, text) => {
    if (path !== mutant.file) return text;
    const parts = text.split(mutant.find);
    if (parts.length !== 2)
      throw new Error(`"${mutant.name}": its text is ${parts.length - 1} times in ${path}`);
    planted = true;
    return parts.join(mutant.replace);
  });
  try {
    if (!planted) throw new Error(`"${mutant.name}": ${mutant.file} is not part of the simulation`);
    const options = ['--seeds', seeds, '--steps', '3000', '--failures', '1'];
    const stdout = await new Promise((resolve) => {
      // Finding a bug is how these runs end with a failure.
      execFile(process.execPath, [entry, ...options], { maxBuffer: 1 << 26 }, (_error, out) => resolve(out));
    });
    const [, seed, how] = /^seed (\d+) broke ([^\n]*)/m.exec(stdout) ?? [];
    return seed === undefined
      ? { found: false, how: stdout.trim().split('\n').at(-1) ?? '' }
      : { found: true, how: `seed ${seed}: ${how.slice(0, 70)}` };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
