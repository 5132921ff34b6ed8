/** How long one pass takes: deciding, and checking what was decided. */
import type { ModelSpec } from '../../src/domain/model-spec.js';
import type { Plan } from '../../src/domain/plan.js';
import type { Snapshot } from '../../src/domain/snapshot.js';
import { checkPlan } from '../../src/domain/reconcile/check-plan.js';
import { DEFAULT_POLICY } from '../../src/domain/reconcile/policy.js';
import { reconcile } from '../../src/domain/reconcile/reconcile.js';
import { seededRandom } from '../../src/shared/random.js';
import { aModel, aProfile } from '../../test/support/cluster-builder.js';
import { fleet, type FleetSize } from './cluster.js';
import { median, quantile, type Line } from './report.js';

const PASSES = 40;
const WARM_UP = 10;
const BAR_MS = 50;

/** More free GPUs than any node has left: every pass looks at every device for it. */
const HOPELESS: ModelSpec = aModel({ name: 'hopeless', profiles: [aProfile({ gpus: 8 })] });

export function measureTicks(): readonly Line[] {
  const base = { nodes: 1_000, gpus: 8, models: 20, replicas: 2_000 };
  return [
    line('a pass with nothing to do', { ...base, wanted: 0 }),
    line('a pass that gives 16 of 200 missing replicas a place', { ...base, wanted: 200 }),
    line('a pass with one model that fits nowhere', { ...base, wanted: 0 }, HOPELESS),
  ];
}

/** The same world two seconds on: every node has reported, and the last pass was the one before. */
function later(snapshot: Snapshot, nowMs: number): Snapshot {
  return {
    ...snapshot,
    nodes: snapshot.nodes.map((node) => ({ ...node, lastReportMs: nowMs - 1_000 })),
    memory: { ...snapshot.memory, lastPassMs: nowMs - 2_000, judgeFromMs: 0 },
  };
}

function line(what: string, size: FleetSize, extra?: ModelSpec): Line {
  const random = seededRandom(1);
  let nowMs = 1_000_000;
  const found = fleet(size, nowMs);
  let snapshot = extra === undefined ? found : { ...found, models: [...found.models, extra] };
  // The first pass sees a new server's empty memory; what counts is every one after it.
  settle(decide());
  nowMs += 2_000;
  snapshot = later(snapshot, nowMs);
  settle(decide());
  const deciding: number[] = [];
  const checking: number[] = [];
  let actions = 0;
  let waiting = 0;
  const cpuMs: number[] = [];
  for (let pass = 0; pass < WARM_UP + PASSES; pass += 1) {
    nowMs += 2_000;
    snapshot = later(snapshot, nowMs);
    const cpu = process.cpuUsage();
    const startMs = performance.now();
    const plan = decide();
    const decidedMs = performance.now();
    const violations = checkPlan(snapshot, plan);
    const endMs = performance.now();
    const { user, system } = process.cpuUsage(cpu);
    if (violations.length > 0) throw new Error(JSON.stringify(violations[0]));
    actions = plan.actions.length;
    waiting = plan.notDone.length;
    if (pass < WARM_UP) continue;
    cpuMs.push((user + system) / 1_000);
    deciding.push(decidedMs - startMs);
    checking.push(endMs - decidedMs);
  }
  const whole = deciding.map((ms, index) => ms + (checking[index] ?? 0));
  return {
    what: `${what} (${actions} actions, ${waiting} reasons)`,
    measured: `${median(cpuMs).toFixed(1)} ms CPU; ${median(whole).toFixed(1)} ms median, ${quantile(whole, 0.9).toFixed(1)} ms p90 (deciding ${median(deciding).toFixed(1)}, checking ${median(checking).toFixed(1)})`,
    bar: `${BAR_MS} ms`,
    met: median(cpuMs) <= BAR_MS,
  };

  /** Keeps what the pass remembers and which replicas it made, but gives none of them its place: every pass does the same. */
  function settle(plan: Plan): void {
    const made = plan.actions.flatMap((action) => (action.kind === 'createReplica' ? [action.record] : []));
    const replicas = [
      ...snapshot.replicas,
      ...made.map((record) => ({ ...record, shards: [], generation: 0 })),
    ];
    snapshot = { ...snapshot, memory: plan.memory, planNumber: plan.number, replicas };
  }

  function decide(): Plan {
    return reconcile(snapshot, DEFAULT_POLICY, { nowMs, nowWallMs: 1_700_000_000_000 + nowMs, random });
  }
}
