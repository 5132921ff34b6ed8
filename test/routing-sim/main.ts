import { runReal, type RealResult } from './real.js';
import { SIM_POLICIES } from './policies.js';
import { percentile, simulate } from './simulate.js';
import type { SimResult } from './simulate.js';
import { WORKLOADS } from './workloads.js';

/** How much of the best p90 ours may miss. */
const MARGIN = 1.03;

/** Where everybody finds all there is, a replica's first computation more or less decides nothing. */
const CACHED_MARGIN = 0.97;

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
    peakDueImbalance: Math.max(...results.map((result) => result.peakDueImbalance)),
    shareImbalance: Math.max(...results.map((result) => result.shareImbalance)),
  };
}

function line(cells: readonly string[]): string {
  return cells.map((cell, at) => (at === 0 ? cell.padEnd(18) : cell.padStart(10))).join('');
}

/** Policies that are compared on real engines: ours, and the two that everybody has. */
const REAL_POLICIES = ['prefixAware', 'leastLoad', 'roundRobin'] as const;

/**
 * The same shapes, shorter, through the real router to simulated engines on sockets. Prints what came of each; returns
 * where ours missed its goal: requests that failed, fewer cached tokens than round robin where there is something to
 * share, an endpoint with more than twice the mean.
 */
export async function runRealRouting(
  scale: number,
  only: string | undefined,
  print: (text: string) => void,
): Promise<string[]> {
  const missed: string[] = [];
  // Whoever came first would pay for what the compiler of the running program does not know yet.
  await runReal(WORKLOADS['no-reuse']!(2, scale / 2), 'prefixAware', 1);
  for (const [name, make] of Object.entries(WORKLOADS)) {
    if (only !== undefined && !name.includes(only)) continue;
    const workload = make(1, scale);
    print(`\n${name}: ${workload.replicas.length} engines, ${workload.arrivals.length} arrivals`);
    print(line(['', 'p50 ms', 'p90 ms', 'p99 ms', 'cached', 'busiest x', 'failed']));
    const results: RealResult[] = [];
    for (const policy of REAL_POLICIES) {
      const result = await runReal(make(1, scale), policy, 1);
      results.push(result);
      const at = (share: number) => percentile(Float64Array.from(result.ttftMs), share).toFixed(0);
      const shares = [`${(100 * result.cachedShare).toFixed(1)}%`, result.busiest.toFixed(2)];
      print(line([policy, at(0.5), at(0.9), at(0.99), ...shares, String(result.failures)]));
    }
    const [ours, , turns] = results;
    if (ours === undefined || turns === undefined) continue;
    if (ours.failures > 0) missed.push(`${name}: failures`);
    if (ours.cachedShare < CACHED_MARGIN * turns.cachedShare) missed.push(`${name}: cached`);
    if (ours.busiest > 2) missed.push(`${name}: imbalance`);
  }
  return missed;
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
    print(line(['', 'p50 ms', 'p90 ms', 'p99 ms', 'hits', 'peak x', 'due x', 'share x', 'p90/best']));
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
          result.peakDueImbalance === 0 ? '-' : result.peakDueImbalance.toFixed(2),
          result.shareImbalance.toFixed(2),
          (p90 / best).toFixed(2),
        ]),
      );
    }
    const ours = rows[0]!.result;
    if (percentile(ours.ttftMs, 0.9) > MARGIN * best) missed.push(`${name}: p90`);
    if (Math.max(ours.peakImbalance, ours.peakDueImbalance) > 2) missed.push(`${name}: imbalance`);
  }
  return missed;
}
