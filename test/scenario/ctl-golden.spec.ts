import { afterEach, expect, it } from 'vitest';
import { SCENARIOS } from './scenarios.js';
import type { ScriptedCluster } from './scripted-cluster.js';

/** Several processes of a cluster start and stop in each. */
const SCENARIO_TIMEOUT_MS = 60_000;

/** Asked once: a second time would find it done. */
const isChange = (line: string): boolean =>
  /^(scale|(?:un)?cordon|drain|keys create|config reload)\b/.test(line) && !line.includes('--plan');

let cluster: ScriptedCluster | undefined;
afterEach(() => cluster?.dispose());

// What stands in the files is what an operator sees; `npx vitest run --project unit test/scenario -u` writes them anew.
// Elsewhere 127.0.0.1 is the only loopback address.
it.skipIf(process.platform !== 'linux').each(SCENARIOS)(
  '$name',
  { timeout: SCENARIO_TIMEOUT_MS },
  async ({ name, start, commands, json = [] }) => {
    cluster = await start();
    const sections: string[] = [];
    for (const line of await commands(cluster)) {
      const formats = isChange(line)
        ? ['table']
        : json.some((one) => line.startsWith(one))
          ? ['table', 'wide', 'json']
          : ['table', 'wide'];
      let before: string | undefined;
      for (const format of formats) {
        const { code, out, err } = await cluster.ctl(...line.split(' '), '-o', format);
        const text = `${out}${err === '' ? '' : `--- standard error\n${err}`}${code === 0 ? '' : `--- exit code ${code}\n`}`;
        // Most details have no wide form.
        if (text !== before)
          sections.push(
            `$ llmgw ctl ${cluster.masked(line)}${format === 'table' ? '' : ` -o ${format}`}\n${text}`,
          );
        before = text;
      }
      // The next question is asked when nothing moves any more.
      if (isChange(line)) await cluster.quiet();
    }
    await expect(sections.join('\n')).toMatchFileSnapshot(`golden/${name}.golden`);
  },
);
