// Compares the routing policies on simulated fleets: npm run sim:routing [-- --seeds 3 --scale 1 --only many-tenants]
// --real sends shorter ones through the real router to simulated engines on sockets.
import { spawnSync } from 'node:child_process';
import { parseArgs } from 'node:util';

/** Real engines take real time: twelve seconds of each shape instead of four minutes. */
const REAL_SCALE = 0.05;

const { values } = parseArgs({
  options: {
    seeds: { type: 'string', default: '3' },
    scale: { type: 'string', default: '1' },
    only: { type: 'string' },
    real: { type: 'boolean', default: false },
  },
});

const build = spawnSync(process.execPath, ['node_modules/typescript/bin/tsc', '-p', 'tsconfig.sim.json'], {
  stdio: 'inherit',
});
if (build.status !== 0) process.exit(build.status ?? 1);

// Not a literal: tools that follow imports must not take what was compiled here for a source.
const entry = new URL('../dist/sim/test/routing-sim/main.js', import.meta.url);
const { runRealRouting, runRoutingSim } = await import(entry.href);
const print = (text) => console.log(text);
const missed = values.real
  ? await runRealRouting(Number(values.scale) * REAL_SCALE, values.only, print)
  : runRoutingSim(Number(values.seeds), Number(values.scale), values.only, print);
console.log(
  missed.length === 0 ? '\nprefixAware met its goal in every shape.' : `\nmissed: ${missed.join(', ')}`,
);
process.exitCode = missed.length === 0 ? 0 : 1;
