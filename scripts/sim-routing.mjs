// Compares the routing policies on simulated fleets: npm run sim:routing [-- --seeds 3 --scale 1 --only many-tenants]
import { spawnSync } from 'node:child_process';
import { parseArgs } from 'node:util';

const { values } = parseArgs({
  options: {
    seeds: { type: 'string', default: '3' },
    scale: { type: 'string', default: '1' },
    only: { type: 'string' },
  },
});

const build = spawnSync(process.execPath, ['node_modules/typescript/bin/tsc', '-p', 'tsconfig.sim.json'], {
  stdio: 'inherit',
});
if (build.status !== 0) process.exit(build.status ?? 1);

const { runRoutingSim } = await import('../dist/sim/test/routing-sim/main.js');
const missed = runRoutingSim(Number(values.seeds), Number(values.scale), values.only, (text) =>
  console.log(text),
);
console.log(
  missed.length === 0 ? '\nprefixAware met its goal in every shape.' : `\nmissed: ${missed.join(', ')}`,
);
process.exitCode = missed.length === 0 ? 0 : 1;
