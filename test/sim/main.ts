/* oxlint-disable no-console -- a program for people */
/** `npm run sim -- --seeds N --steps M --seed S [--every E]`: runs N histories from seed S on, every E-th, and prints what broke. */
import { parseArgs } from 'node:util';
import { runSeed, type SeedFailure } from './run-seeds.js';

const { values } = parseArgs({
  options: {
    seeds: { type: 'string', default: '20' },
    steps: { type: 'string', default: '5000' },
    seed: { type: 'string', default: '1' },
    every: { type: 'string', default: '1' },
    failures: { type: 'string', default: '5' },
    trace: { type: 'string' },
    counts: { type: 'boolean', default: false },
  },
});
const seeds = Number(values.seeds);
const steps = Number(values.steps);
const first = Number(values.seed);
const every = Number(values.every);
/** `--trace TEXT` prints the lines in which the text occurs; `--trace ''` prints all. */
const { trace: wanted } = values;
const trace =
  wanted === undefined
    ? undefined
    : (text: string) => {
        const [head, ...lines] = text.split('\n');
        const shown = lines.filter((line) => line.includes(wanted));
        if (shown.length > 0 || head?.includes(wanted)) console.log([head, ...shown].join('\n'));
      };
const failures: SeedFailure[] = [];
const startedMs = performance.now();
const counts = new Map<string, number>();
let ran = 0;
for (let seed = first; ran < seeds && failures.length < Number(values.failures); seed += every) {
  ran += 1;
  const failure = runSeed(seed, steps, counts, trace);
  if (failure === undefined) continue;
  failures.push(failure);
  console.log(`seed ${failure.seed} broke ${failure.message} (at ${failure.atMs} ms of virtual time)`);
  console.log(`  again: npm run sim -- --seeds 1 --steps ${steps} --seed ${failure.seed}`);
}
const seconds = ((performance.now() - startedMs) / 1000).toFixed(1);
console.log(
  `${ran} histories of ${steps} steps in ${seconds} s: ${ran - failures.length} held, ${failures.length} broke`,
);
if (values.counts)
  for (const [name, count] of [...counts].toSorted(([a], [b]) => (a < b ? -1 : 1)))
    console.log(`${String(count).padStart(8)} ${name}`);
process.exitCode = failures.length > 0 ? 1 : 0;
