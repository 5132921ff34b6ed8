/** How long one pass takes: deciding, and checking what was decided. */
import { checkPlan } from '../../src/domain/reconcile/check-plan.js';
import { DEFAULT_POLICY } from '../../src/domain/reconcile/policy.js';
import { reconcile } from '../../src/domain/reconcile/reconcile.js';
import { seededRandom } from '../../src/shared/random.js';
import { fleet } from './cluster.js';
import { median, quantile, type Line } from './report.js';

const PASSES = 40;
const WARM_UP = 10;
const BAR_MS = 50;

export function measureTicks(): readonly Line[] {
  const base = { nodes: 1_000, gpus: 8, models: 20, replicas: 2_000 };
  return [
    line('a pass with nothing to do', { ...base, wanted: 0 }),
    line('a pass that places 16 of 200 missing replicas', { ...base, wanted: 200 }),
  ];
}

function line(what: string, size: Parameters<typeof fleet>[0]): Line {
  const random = seededRandom(1);
  let nowMs = 1_000_000;
  let snapshot = fleet(size, nowMs);
  // The first pass sees a new server's empty memory; what counts is every one after it.
  snapshot = { ...snapshot, memory: decide().memory, planNumber: 2 };
  const deciding: number[] = [];
  const checking: number[] = [];
  let actions = 0;
  const cpuMs: number[] = [];
  for (let pass = 0; pass < WARM_UP + PASSES; pass += 1) {
    nowMs += 2_000;
    snapshot = {
      ...snapshot,
      nodes: snapshot.nodes.map((node) => ({ ...node, lastReportMs: nowMs - 1_000 })),
    };
    const cpu = process.cpuUsage();
    const startMs = performance.now();
    const plan = decide();
    const decidedMs = performance.now();
    const violations = checkPlan(snapshot, plan);
    const endMs = performance.now();
    const { user, system } = process.cpuUsage(cpu);
    if (violations.length > 0) throw new Error(JSON.stringify(violations[0]));
    actions = plan.actions.length;
    if (pass < WARM_UP) continue;
    cpuMs.push((user + system) / 1_000);
    deciding.push(decidedMs - startMs);
    checking.push(endMs - decidedMs);
  }
  const whole = deciding.map((ms, index) => ms + (checking[index] ?? 0));
  return {
    what: `${what} (${actions} actions)`,
    measured: `${median(cpuMs).toFixed(1)} ms CPU; ${median(whole).toFixed(1)} ms median, ${quantile(whole, 0.9).toFixed(1)} ms p90 (deciding ${median(deciding).toFixed(1)}, checking ${median(checking).toFixed(1)})`,
    bar: `${BAR_MS} ms`,
    met: median(cpuMs) <= BAR_MS,
  };

  function decide() {
    return reconcile(snapshot, DEFAULT_POLICY, { nowMs, nowWallMs: 1_700_000_000_000 + nowMs, random });
  }
}
