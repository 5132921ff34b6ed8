// Switches the planted bugs of test/sim/mutants.ts on, one after another, and prints which the simulator found and how.
// `npm run sim:mutants [-- NAME-PART] [--seeds N]`
import { spawnSync } from 'node:child_process';
import { rmSync } from 'node:fs';
import { pathToFileURL } from 'node:url';
import { compileGraph } from './run-ts.mjs';

const args = process.argv.slice(2);
const seedsAt = args.indexOf('--seeds');
const seeds = seedsAt < 0 ? '300' : args.splice(seedsAt, 2)[1];
const wanted = args[0] ?? '';

const list = compileGraph('test/sim/mutants.ts');
const { MUTANTS } = await import(pathToFileURL(list.entry).href);
rmSync(list.folder, { recursive: true, force: true });

let missed = 0;
for (const mutant of MUTANTS.filter(({ name }) => name.includes(wanted))) {
  const outcome = run(mutant);
  if (!outcome.found) missed += 1;
  console.log(`${outcome.found ? 'found ' : 'MISSED'}  ${mutant.name.padEnd(62)} ${outcome.how}`);
}
console.log(missed === 0 ? 'every planted bug was found' : `${missed} planted bugs were not found`);
process.exitCode = missed === 0 ? 0 : 1;

function run(mutant) {
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
    const { stdout } = spawnSync(
      process.execPath,
      [entry, '--seeds', seeds, '--steps', '3000', '--failures', '1'],
      {
        encoding: 'utf8',
      },
    );
    const [, seed, how] = /^seed (\d+) broke ([^\n]*)/m.exec(stdout) ?? [];
    return seed === undefined
      ? { found: false, how: stdout.trim().split('\n').at(-1) ?? '' }
      : { found: true, how: `seed ${seed}: ${how.slice(0, 70)}` };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
