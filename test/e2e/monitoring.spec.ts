import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { ListView } from '../../src/admin-api/views/answers.js';
import type { ReplicaSummaryView } from '../../src/admin-api/views/replicas.js';
import { SimEngine } from '../../src/engines/sim/sim-engine.js';
import {
  adminGet,
  LlmgwProcess,
  Scratch,
  startServerProcess,
  type ServerUrls,
} from '../support/llmgw-process.js';
import { expressions } from '../support/monitoring-files.js';
import { readPromql, type Selector } from '../support/promql.js';
import { waitFor } from '../support/wait-for.js';

const config = (ports: readonly number[]): string => `
control: { interval: 200ms, settleAfterStart: 2s }
models:
  - name: m1
    profiles: [{ name: sim, engine: sim, gpus: 1 }]
endpoints:
${ports.map((port, index) => `  - { id: e${index + 1}, url: "http://127.0.0.1:${port}", models: [m2], maxConcurrency: 1 }`).join('\n')}
`;

/** Labels that Prometheus adds, or that only its histograms have. */
const ADDED = new Set(['instance', 'job', 'le']);
/** Labels whose values come with events that this test does not make. */
const VALUES_NOT_SEEN: ReadonlySet<string> = new Set(['code', 'listener', 'job']);

/** One metric of a scrape: its labels with the values seen. */
type Series = ReadonlyMap<string, ReadonlySet<string>>;

function readScrape(text: string): ReadonlyMap<string, Series> {
  const metrics = new Map<string, Map<string, Set<string>>>();
  for (const [, name] of text.matchAll(/^# TYPE (\S+)/gm)) metrics.set(name!, new Map());
  for (const [, name, labels] of text.matchAll(/^(\w+)(?:\{(.*)\})? \S+$/gm)) {
    const series = metrics.get(name!) ?? metrics.get(baseName(name!));
    for (const [, label, value] of (labels ?? '').matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g))
      series?.set(label!, (series.get(label!) ?? new Set()).add(value!));
  }
  return metrics;
}

const baseName = (name: string): string => name.replace(/_(bucket|sum|count)$/, '');

describe('what rules and dashboards look at', () => {
  const scratch = new Scratch();
  const engines = ['e1', 'e2'].map((name) => new SimEngine({ models: ['m2'], name, seed: 3, tpotMs: 5 }));
  const processes: LlmgwProcess[] = [];
  let urls: ServerUrls;
  let scrape: ReadonlyMap<string, Series>;

  const chat = async (model: string, content: string, stream: boolean): Promise<void> => {
    const response = await fetch(`${urls.client}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ model, stream, max_tokens: 8, messages: [{ role: 'user', content }] }),
    });
    await response.text().catch(() => '');
  };

  beforeAll(async () => {
    const ports = await Promise.all(engines.map((engine) => engine.start({ port: 0 })));
    const started = await startServerProcess(scratch, [
      '--config',
      scratch.file('server.yaml', config(ports)),
    ]);
    processes.push(started.process);
    urls = started.urls;
    const agent = `gpus: { driver: static, static: [{ uuid: GPU-0, type: sim, memory: 80GiB }] }\nonExit: stop\n`;
    processes.push(
      new LlmgwProcess(
        [
          ...['agent', '--server', urls.agent, '--node-id', 'n1', '--state-dir', scratch.path('agent')],
          ...['--config', scratch.file('agent.yaml', agent)],
        ],
        {},
        scratch.dir,
      ),
    );
    const replica = await waitFor(
      async () =>
        (await adminGet<ListView<ReplicaSummaryView>>(urls, 'replicas')).items.find((one) => one.published),
      { deadlineMs: 60_000, what: 'the replica' },
    );
    const prompt = 'a prompt that is long enough to be remembered in blocks '.repeat(20);
    for (const model of ['m1', 'm2', 'nobody']) {
      await chat(model, prompt, false);
      await chat(model, prompt, true);
    }
    // Tried elsewhere, broken off, refused for good.
    for (const fault of ['status=503', 'reset-after-events=3', 'status=400']) {
      await chat('m2', `[[fault:${fault}]] ${prompt}`, true);
    }
    // More than there is room for: some wait.
    await Promise.all(Array.from({ length: 6 }, () => chat('m2', 'all at once', true)));
    await restartOnce(replica.id);
    scrape = readScrape(await (await fetch(`${urls.admin}/metrics`)).text());
  });

  /** A failure of the engine, so that causes and steps of the control plane are counted. */
  async function restartOnce(id: string): Promise<void> {
    const { shards } = await adminGet<{ shards: { pid?: number }[] }>(urls, `replicas/${id}`);
    process.kill(shards[0]?.pid ?? 0, 'SIGKILL');
    await waitFor(
      async () =>
        (await (await fetch(`${urls.admin}/metrics`)).text()).includes('llmgw_shard_restarts_total{'),
      { deadlineMs: 20_000, what: 'the failure to be counted' },
    );
  }

  afterAll(async () => {
    for (const process of processes.toReversed()) await process.dispose();
    for (const engine of engines) await engine.stop();
    scratch.remove();
  });

  const used = expressions().map(({ where, expr }) => ({ where, ...readPromql(expr) }));
  const selectors = used.flatMap(({ where, selectors: all }) =>
    all
      .filter(({ metric }) => metric !== 'up' && !metric.includes(':'))
      .map((selector) => ({ where, ...selector, name: metricName(selector) })),
  );

  /** `x_count` may be a metric of its own or a part of a histogram. */
  function metricName({ metric }: Selector): string {
    return metric.startsWith('llmgw_') ? baseName(metric) : metric;
  }

  it('are metrics that a real server has', () => {
    expect(
      selectors.filter(({ name }) => !scrape.has(name)).map(({ where, name }) => `${where}: ${name}`),
    ).toEqual([]);
  });

  it('are metrics of which this traffic makes samples, so that the rest of the check means something', () => {
    const hasNone = (name: string) => scrape.get(name)?.size === 0 && !hasNoLabels(name);
    expect([...new Set(selectors.map(({ name }) => name).filter(hasNone))]).toEqual([]);
  });

  /** Those that are matched and grouped by nothing of their own. */
  function hasNoLabels(name: string): boolean {
    return selectors
      .filter((selector) => selector.name === name)
      .every(({ matchers }) => matchers.every(({ label }) => ADDED.has(label)));
  }

  it('are labels that those metrics have', () => {
    const wrong = selectors.flatMap(({ where, name, matchers }) =>
      matchers
        .filter(({ label }) => !ADDED.has(label) && !scrape.get(name)?.has(label))
        .map(({ label }) => `${where}: ${name}{${label}}`),
    );
    expect(wrong).toEqual([]);
  });

  it('are values that those labels take', () => {
    const wrong = selectors.flatMap(({ where, name, matchers }) =>
      matchers
        .filter(({ label, value }) => !VALUES_NOT_SEEN.has(label) && !value.includes('$'))
        .flatMap(({ label, value }) => value.split('|').map((one) => ({ label, one })))
        .filter(({ label, one }) => !scrape.get(name)?.get(label)?.has(one))
        .map(({ label, one }) => `${where}: ${name}{${label}="${one}"}`),
    );
    expect(wrong).toEqual([]);
  });

  it('is grouped by labels that are there', () => {
    const wrong = used.flatMap(({ where, selectors: all, grouping }) => {
      const labels = new Set(
        all.flatMap((selector) => [...(scrape.get(metricName(selector))?.keys() ?? [])]),
      );
      // A recorded ratio is per server and model; a refused plan has no sample here and one label.
      if (all.some(({ metric }) => metric.includes(':'))) labels.add('model');
      if (all.some(({ metric }) => metric === 'llmgw_plans_refused_total')) labels.add('violation');
      return grouping
        .filter((label) => !ADDED.has(label) && !labels.has(label))
        .map((label) => `${where}: ${label}`);
    });
    expect(wrong).toEqual([]);
  });
});
