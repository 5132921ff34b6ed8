import { SIM_POLICIES } from './policies.js';
import { percentile, simulate } from './simulate.js';
import type { SimResult } from './simulate.js';
import { WORKLOADS } from './workloads.js';

/** How much of the best p90 ours may miss. */
const MARGIN = 1.03;

interface Row {
  readonly policy: string;
  readonly result: SimResult;
}

function merge(results: readonly SimResult[]): SimResult {
  const mean = (of: (result: SimResult) => number) =>
    results.reduce((sum, r) => sum + of(r), 0) / results.length;
  return {
    ttftMs: Float64Array.from(results.flatMap((result) => [...result.ttftMs])).sort(),
    hitShare: mean((result) => result.hitShare),
    peakImbalance: Math.max(...results.map((result) => result.peakImbalance)),
    shareImbalance: Math.max(...results.map((result) => result.shareImbalance)),
  };
}

function line(cells: readonly string[]): string {
  return cells.map((cell, at) => (at === 0 ? cell.padEnd(18) : cell.padStart(10))).join('');
}

/** Prints the comparison; returns the shapes in which ours missed its goal. */
export function runRoutingSim(
  seeds: number,
  scale: number,
  only: string | undefined,
  print: (text: string) => void,
) {
  const missed: string[] = [];
  for (const [name, make] of Object.entries(WORKLOADS)) {
    if (only !== undefined && !name.includes(only)) continue;
    const workloads = Array.from({ length: seeds }, (_, seed) => make(seed + 1, scale));
    const rows: Row[] = SIM_POLICIES.map(([policy, maker]) => ({
      policy,
      result: merge(workloads.map((workload, seed) => simulate(workload, maker, seed + 1))),
    }));
    const requests = rows[0]!.result.ttftMs.length;
    print(`\n${name}: ${workloads[0]!.replicas.length} replicas, ${requests} requests, ${seeds} seeds`);
    print(line(['', 'p50 ms', 'p90 ms', 'p99 ms', 'hits', 'peak x', 'share x', 'p90/best']));
    const best = Math.min(...rows.map((row) => percentile(row.result.ttftMs, 0.9)));
    for (const { policy, result } of rows) {
      const p90 = percentile(result.ttftMs, 0.9);
      print(
        line([
          policy,
          percentile(result.ttftMs, 0.5).toFixed(0),
          p90.toFixed(0),
          percentile(result.ttftMs, 0.99).toFixed(0),
          Number.isNaN(result.hitShare) ? '-' : `${(100 * result.hitShare).toFixed(1)}%`,
          result.peakImbalance.toFixed(2),
          result.shareImbalance.toFixed(2),
          (p90 / best).toFixed(2),
        ]),
      );
    }
    const ours = rows[0]!.result;
    if (percentile(ours.ttftMs, 0.9) > MARGIN * best) missed.push(`${name}: p90`);
    if (ours.peakImbalance > 2) missed.push(`${name}: imbalance`);
  }
  return missed;
}
