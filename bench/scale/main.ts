/* oxlint-disable no-console -- a program for people */
/** `npm run bench:scale [-- --only tick|explain|streams] [--count N]`: whether the control plane carries a large fleet. */
import os from 'node:os';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { runAgents } from './agents.js';
import { measureExplanations } from './explain.js';
import { table, type Line } from './report.js';
import { measureStreams } from './streams.js';
import { measureTicks } from './tick.js';

const { values } = parseArgs({
  options: {
    only: { type: 'string' },
    count: { type: 'string', default: '2000' },
    profile: { type: 'string' },
    agents: { type: 'string' },
  },
});

if (values.agents === undefined) await measure();
else runAgents(values.agents, Number(values.count));

async function measure(): Promise<void> {
  const wanted = (part: string): boolean => values.only === undefined || values.only === part;
  const load = os.loadavg()[0]?.toFixed(1);
  const lines: Line[] = [];
  if (wanted('tick')) lines.push(...measureTicks());
  if (wanted('explain')) lines.push(...measureExplanations());
  if (wanted('streams'))
    lines.push(
      ...(await measureStreams(Number(values.count), fileURLToPath(import.meta.url), values.profile)),
    );
  const cpu = os.cpus()[0]?.model ?? 'unknown processor';
  console.log(`Node ${process.versions.node}, ${os.cpus().length} × ${cpu}, load average at start ${load}\n`);
  console.log(table(lines));
  process.exitCode = lines.every(({ met }) => met) ? 0 : 1;
}
