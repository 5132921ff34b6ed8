import { describe, expect, it } from 'vitest';
import {
  dashboards,
  datasources,
  expectedAlerts,
  expressions,
  rules,
  type Panel,
} from '../support/monitoring-files.js';
import { readPromql } from '../support/promql.js';
import { read } from './repository.js';

const alerts = rules().filter((rule) => rule.alert !== undefined);
const runbooks = read('docs/runbooks.md').text;

describe('alert rules', () => {
  it('are named once, say how bad it is, what is wrong and where to read on', () => {
    expect(new Set(alerts.map(({ alert }) => alert)).size).toBe(alerts.length);
    for (const { alert = '', labels, annotations } of alerts) {
      expect(alert).toMatch(/^Llmgw[A-Z]\w+$/);
      expect([alert, labels?.['severity']]).toEqual([alert, expect.stringMatching(/^(critical|warning)$/)]);
      expect(Object.keys(annotations ?? {})).toEqual(['summary', 'description', 'runbook_url']);
      expect(annotations?.['runbook_url']).toBe(`docs/runbooks.md#${alert.toLowerCase()}`);
    }
  });

  it('each have a section in the runbooks, and no section is left over', () => {
    const sections = [...runbooks.matchAll(/^### (.+)$/gm)].map(([, title]) => title);
    expect(sections).toEqual(expect.arrayContaining(alerts.map(({ alert }) => alert)));
    expect(sections).toHaveLength(alerts.length);
    for (const section of runbooks.split(/^### /m).slice(1)) expect(section).toContain('```sh\n');
  });

  it('each have a unit test in which they fire', () => {
    const tested = new Set(expectedAlerts());
    expect(alerts.map(({ alert }) => alert).filter((alert) => !tested.has(alert ?? ''))).toEqual([]);
  });
});

describe('expressions of rules and dashboards', () => {
  it.each(expressions().map(({ where, expr }) => [where, expr]))('%s can be read', (_where, expr) => {
    expect(readPromql(expr).selectors.length).toBeGreaterThan(0);
  });
});

describe('dashboards', () => {
  const shipped = dashboards();

  it('are the four there should be, each under its own uid for good', () => {
    expect(shipped.map(({ file, uid }) => [file, uid])).toEqual(
      ['llmgw-gateway', 'llmgw-machines', 'llmgw-model', 'llmgw-overview'].map((uid) => [`${uid}.json`, uid]),
    );
    for (const { schemaVersion, title, description, tags, templating } of shipped) {
      expect(schemaVersion).toBeGreaterThanOrEqual(39);
      expect(title).toMatch(/^llmgw \/ /);
      expect(description).toMatch(/\.$/);
      expect(tags).toContain('llmgw');
      expect(templating.list.map(({ name }) => name)).toContain('instance');
    }
  });

  it.each(shipped.map((dashboard) => [dashboard.file, dashboard] as const))(
    '%s: every panel says what it shows, in a unit, from the datasource that is provisioned',
    (_file, { panels }) => {
      const drawn = panels.filter(({ type }) => type !== 'row');
      expect(new Set(panels.map(({ id }) => id)).size).toBe(panels.length);
      for (const { title, description, datasource, fieldConfig, targets } of drawn) {
        expect([title, description]).toEqual([title, expect.stringMatching(/\.$/)]);
        expect([title, fieldConfig?.defaults.unit]).toEqual([title, expect.stringMatching(/^\w+$/)]);
        expect(fieldConfig?.defaults.thresholds?.steps.length).toBeGreaterThan(0);
        expect(datasources()).toContain(datasource?.uid);
        expect([title, targets?.length ?? 0]).not.toEqual([title, 0]);
      }
    },
  );

  it.each(shipped.map((dashboard) => [dashboard.file, dashboard] as const))(
    '%s: panels lie within the grid and not on each other',
    (_file, { panels }) => {
      expect(panels.filter(({ gridPos: { x, w } }) => x + w > 24).map(({ title }) => title)).toEqual([]);
      const on = panels.flatMap((one, index) =>
        panels.slice(index + 1).flatMap((other) => (overlap(one, other) ? [[one.title, other.title]] : [])),
      );
      expect(on).toEqual([]);
    },
  );

  it('every variable that an expression uses is one of the dashboard', () => {
    const wrong = shipped.flatMap(({ file, panels, templating }) => {
      const known = new Set(['__rate_interval', ...templating.list.map(({ name }) => name)]);
      const used = panels
        .flatMap(({ targets }) => targets ?? [])
        .flatMap(({ expr }) => [...expr.matchAll(/\$(\w+)/g)]);
      return used.filter(([, name]) => !known.has(name!)).map(([, name]) => `${file}: $${name}`);
    });
    expect(wrong).toEqual([]);
  });
});

function overlap({ gridPos: a }: Panel, { gridPos: b }: Panel): boolean {
  return a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h;
}
