/** Prints every expression of the dashboards as a file of recording rules, so that promtool can read them. */
import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { join } from 'node:path';
import { stringify } from 'yaml';

const folder = fileURLToPath(new URL('../deploy/grafana/dashboards', import.meta.url));
const rules = readdirSync(folder).flatMap((file) => {
  const dashboard = JSON.parse(readFileSync(join(folder, file), 'utf8'));
  const queries = [
    ...dashboard.panels.flatMap((panel) => panel.targets ?? []),
    ...dashboard.annotations.list.filter(({ expr }) => expr !== undefined),
  ];
  return queries.map(({ expr }, index) => ({
    record: `${dashboard.uid.replaceAll('-', '_')}:${index}`,
    // Grafana fills it in; any duration is as good.
    expr: expr.replaceAll('$__rate_interval', '5m'),
  }));
});
process.stdout.write(stringify({ groups: [{ name: 'dashboards', rules }] }, { lineWidth: 0 }));
