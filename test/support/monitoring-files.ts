/** The alert rules and dashboards that are shipped, read as what they are. */
import { readdirSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parse } from 'yaml';

const DEPLOY = resolve(fileURLToPath(import.meta.url), '../../../deploy');

export interface Rule {
  readonly alert?: string;
  readonly record?: string;
  readonly expr: string;
  readonly for?: string;
  readonly labels?: Readonly<Record<string, string>>;
  readonly annotations?: Readonly<Record<string, string>>;
}

export interface Panel {
  readonly id: number;
  readonly type: string;
  readonly title: string;
  readonly description?: string;
  readonly datasource?: { readonly uid: string };
  readonly gridPos: { readonly h: number; readonly w: number; readonly x: number; readonly y: number };
  readonly fieldConfig?: {
    readonly defaults: {
      readonly unit?: string;
      readonly thresholds?: { readonly steps: readonly unknown[] };
    };
  };
  readonly targets?: readonly {
    readonly expr: string;
    readonly legendFormat: string;
    readonly refId: string;
  }[];
}

export interface Dashboard {
  readonly file: string;
  readonly uid: string;
  readonly title: string;
  readonly description: string;
  readonly tags: readonly string[];
  readonly schemaVersion: number;
  readonly panels: readonly Panel[];
  readonly templating: {
    readonly list: readonly { readonly name: string; readonly definition: string; readonly label: string }[];
  };
  readonly annotations: { readonly list: readonly { readonly expr: string }[] };
}

const readYaml = (path: string): unknown => parse(readFileSync(join(DEPLOY, path), 'utf8'), { merge: true });

export function rules(): readonly Rule[] {
  const { groups } = readYaml('prometheus/alerts.yml') as { groups: { rules: Rule[] }[] };
  return groups.flatMap((group) => group.rules);
}

/** What each unit test of the rules expects to fire. */
export function expectedAlerts(): readonly string[] {
  const { tests } = readYaml('prometheus/alerts.test.yml') as {
    tests: { promql_expr_test?: { exp_samples: { labels: string }[] }[] }[];
  };
  return tests
    .flatMap(({ promql_expr_test: checks }) => checks ?? [])
    .flatMap(({ exp_samples: samples }) => samples)
    .map(({ labels }) => /alertname="(\w+)"/.exec(labels)?.[1] ?? '');
}

export function dashboards(): readonly Dashboard[] {
  return readdirSync(join(DEPLOY, 'grafana/dashboards')).map((file) => ({
    file,
    ...(JSON.parse(readFileSync(join(DEPLOY, 'grafana/dashboards', file), 'utf8')) as Omit<
      Dashboard,
      'file'
    >),
  }));
}

/** Uids of the datasources that Grafana is given. */
export function datasources(): readonly string[] {
  const { datasources: all } = readYaml('grafana/provisioning/datasources/prometheus.yml') as {
    datasources: { uid: string }[];
  };
  return all.map(({ uid }) => uid);
}

/** Every expression that is shipped, with where it stands; what Grafana fills in is filled in. */
export function expressions(): readonly { readonly where: string; readonly expr: string }[] {
  const filled = (expr: string) => expr.replaceAll('$__rate_interval', '5m');
  return [
    ...rules().map((rule) => ({ where: rule.alert ?? rule.record ?? '', expr: rule.expr })),
    ...dashboards().flatMap(({ file, panels, templating, annotations }) => [
      ...panels.flatMap(({ title, targets }) =>
        (targets ?? []).map(({ expr }) => ({ where: `${file}: ${title}`, expr: filled(expr) })),
      ),
      ...annotations.list.map(({ expr }) => ({ where: `${file}: annotation`, expr })),
      ...templating.list.map(({ name, definition }) => ({
        where: `${file}: $${name}`,
        // label_values(metric, label) is Grafana's own and asks for that label of that metric.
        expr: definition.replace(/^label_values\((\w+), (\w+)\)$/, 'sum by ($2) ($1)'),
      })),
    ]),
  ];
}
