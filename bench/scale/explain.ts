/** How long an explanation takes: every node and every device with all reasons, and the nearest change that would help. */
import { explainPlacement } from '../../src/domain/reconcile/explain.js';
import { DEFAULT_POLICY } from '../../src/domain/reconcile/policy.js';
import { seededRandom } from '../../src/shared/random.js';
import { aModel, aProfile } from '../../test/support/cluster-builder.js';
import { fleet } from './cluster.js';
import { median, quantile, type Line } from './report.js';

const RUNS = 40;
const WARM_UP = 10;
const BAR_MS = 50;

export function measureExplanations(): readonly Line[] {
  return [
    line('explain-placement, 200 nodes × 8 GPUs, one GPU wanted', 1),
    line('explain-placement, 200 nodes × 8 GPUs, fits nowhere', 16),
  ];
}

function line(what: string, gpus: number): Line {
  const nowMs = 1_000_000;
  const asked = aModel({ name: 'asked', profiles: [aProfile({ gpus }), aProfile({ name: 'q', gpus })] });
  const found = fleet({ nodes: 200, gpus: 8, models: 20, replicas: 800, wanted: 0 }, nowMs);
  const snapshot = {
    ...found,
    nodes: found.nodes.map((node) => ({ ...node, lastReportMs: nowMs })),
    models: [...found.models, asked],
    memory: { ...found.memory, lastPassMs: nowMs - 2_000 },
  };
  const context = { nowMs, nowWallMs: 1_700_000_000_000, random: seededRandom(1) };
  const tookMs: number[] = [];
  let told = 0;
  for (let run = 0; run < WARM_UP + RUNS; run += 1) {
    const startMs = performance.now();
    const explanation = explainPlacement(snapshot, DEFAULT_POLICY, context, 'asked');
    if (run >= WARM_UP) tookMs.push(performance.now() - startMs);
    told = explanation?.profiles.reduce((sum, { nodes }) => sum + nodes.length, 0) ?? 0;
  }
  return {
    what: `${what} (${told} verdicts)`,
    measured: `${median(tookMs).toFixed(1)} ms median, ${quantile(tookMs, 0.9).toFixed(1)} ms p90`,
    bar: `${BAR_MS} ms`,
    met: median(tookMs) <= BAR_MS,
  };
}
