import { mkdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import type { ListView } from '../../src/admin-api/views/answers.js';
import type { ModelSummaryView } from '../../src/admin-api/views/models.js';
import type { StatusView } from '../../src/admin-api/views/status.js';
import { Fleet, streamed, Traffic, type FleetOptions } from '../support/fleet.js';
import { adminGet, type Scratch } from '../support/llmgw-process.js';
import { waitFor } from '../support/wait-for.js';

interface Written {
  readonly name: string;
  readonly tpotMs?: number;
  readonly startupMs?: number;
  readonly bad?: boolean;
}

const model = ({ name, tpotMs = 50, startupMs = 500, bad = false }: Written): string => `
  - name: ${name}
    replicas: 1
    profiles:
      - name: sim
        engine: sim
        gpus: 1
        args: ["--ttft-ms", "20", "--tpot-ms", "${tpotMs}", "--startup-ms", "${startupMs}"${bad ? ', "--no-such-flag"' : ''}]
`;

const file = (...models: readonly Written[]): string =>
  `control: { interval: 200ms, settleAfterStart: 5s, baseBackoff: 1s }\nmodels:${models.map(model).join('')}`;

describe('a configuration that changes while requests run', () => {
  let fleet: Fleet;
  afterEach(() => fleet.dispose());

  const start = async (config: FleetOptions['config']): Promise<string> => {
    fleet = await Fleet.start({ config, nodes: { n1: { gpus: 3 } } });
    return fleet.configFile;
  };

  const copies = async (model: string) => (await fleet.replicas()).filter((one) => one.model === model);

  it('rolls the model that changed, cuts nothing, and leaves the other alone', async () => {
    const path = await start(file({ name: 'm1' }, { name: 'm2' }));
    await fleet.serves('m1', 'm2');
    const [m1, m2] = [await fleet.identity('m1'), await fleet.identity('m2')];

    const load = { long: 8, longTokens: 400, perSecond: 5 };
    const [changing, other] = [new Traffic(fleet, 'm1', load), new Traffic(fleet, 'm2', load)];
    writeFileSync(path, `# only m1\n${file({ name: 'm2' }, { name: 'm1', tpotMs: 40 })}`);
    await waitFor(async () => (await fleet.identity('m1')).every((one) => !m1.includes(one)), {
      deadlineMs: 90_000,
      what: 'the old copy of m1 to be gone',
    });
    const whole = { long: new Set(['whole']), short: new Set(['whole']) };
    expect([await changing.end(), await other.end()]).toEqual([whole, whole]);
    expect([changing.fewestReady, other.fewestReady]).toEqual([1, 1]);
    expect(await fleet.identity('m2')).toEqual(m2);
    await fleet.serves('m1', 'm2');
    expect(await fleet.events('ConfigReloaded')).toHaveLength(1);
  });

  it('takes one reload from three saves in a row, nothing from comments, and refuses a broken file', async () => {
    const path = await start(file({ name: 'm1' }));
    await fleet.serves('m1');
    const before = await fleet.identity('m1');

    // What editors do: empty, half, whole, by renaming.
    writeFileSync(`${path}.new`, file({ name: 'm1' }, { name: 'm2' }));
    writeFileSync(path, '');
    writeFileSync(path, file({ name: 'm1' }, { name: 'm2' }).slice(0, 90));
    renameSync(`${path}.new`, path);
    await fleet.serves('m1', 'm2');
    expect(await fleet.events('ConfigReloaded')).toHaveLength(1);
    expect(await fleet.events('ConfigRefused')).toEqual([]);

    writeFileSync(path, `${file({ name: 'm1' }, { name: 'm2' })}\nrouter: { bodyLimt: 1MiB }\n`);
    const refused = await waitFor(async () => (await fleet.events('ConfigRefused'))[0], {
      deadlineMs: 20_000,
      what: 'the refusal',
    });
    expect(refused.reason.message).toMatch(
      /server\.yaml:\d+:11: router\.bodyLimt: .*did you mean.*bodyLimit/,
    );
    const status = await adminGet<StatusView>(fleet.urls, 'status');
    expect(status.config.problems).toMatchObject([{ source: path, column: 11, path: 'router.bodyLimt' }]);
    const reload = await fleet.ctl('config', 'reload');
    expect(reload.code).toBe(2);
    expect(reload.stderr).toMatch(/server\.yaml:\d+:11/);

    writeFileSync(path, `# a comment\n${file({ name: 'm2' }, { name: 'm1' })}`);
    await waitFor(
      async () => (await adminGet<StatusView>(fleet.urls, 'status')).config.lastError === undefined,
      { deadlineMs: 20_000, what: 'the file to be valid again' },
    );
    fleet.server.signal('SIGHUP');
    await fleet.server.logged('the configuration was read again and has not changed');
    expect(await fleet.identity('m1')).toEqual(before);
  });

  it('is planned with exit codes of its own, and one replica restarts with a new copy first', async () => {
    await start(file({ name: 'm1' }, { name: 'm2' }));
    await fleet.serves('m1', 'm2');
    const plan = (name: string, text: string) => fleet.ctl('plan', '-f', fleet.scratch.file(name, text));
    const same = await plan('same.yaml', `# only a comment\n${file({ name: 'm2' }, { name: 'm1' })}`);
    expect([same.code, same.stdout]).toEqual([0, 'nothing would change\n']);
    const rolls = await plan('other.yaml', file({ name: 'm1', tpotMs: 40 }, { name: 'm2' }));
    expect(rolls.code).toBe(1);
    expect(rolls.stdout).toMatch(/m1 \(new 1\) +starts +n1[^]*m1 \(new 1\) +serves[^]*leaves[^]*stopped/);
    expect(rolls.stdout).not.toMatch(/m2 \(new/);
    const wrong = await plan('wrong.yaml', 'models: 7\n');
    expect([wrong.code, wrong.stdout]).toEqual([2, '']);
    expect(wrong.stderr).toContain('wrong.yaml:1:9: models');

    const [m1, m2] = [await fleet.identity('m1'), await fleet.identity('m2')];
    const id = m1[0]?.split('@')[0] ?? '';
    let fewestReady = Infinity;
    let stop = false;
    const looking = (async () => {
      while (!stop)
        fewestReady = Math.min(fewestReady, (await copies('m1')).filter((one) => one.published).length);
    })();
    const restarted = await fleet.ctl('restart', id, '--wait', '-o', 'json');
    stop = true;
    await looking;
    expect(restarted.code).toBe(0);
    expect(JSON.parse(restarted.stdout)).toMatchObject({ model: 'm1', replica: id, changed: true });
    expect(fewestReady).toBeGreaterThanOrEqual(1);
    expect(await fleet.identity('m1')).not.toEqual(m1);
    expect(await fleet.identity('m2')).toEqual(m2);
  });

  it('follows a link that is swapped, as mounted volumes do', async () => {
    await start({
      at: (scratch: Scratch) => {
        for (const [folder, text] of [
          ['v1', file({ name: 'm1' })],
          ['v2', file({ name: 'm1' }, { name: 'm2' })],
        ] as const) {
          mkdirSync(scratch.path(folder));
          writeFileSync(join(scratch.path(folder), 'server.yaml'), text);
        }
        mkdirSync(scratch.path('mount'));
        symlinkSync('../v1', scratch.path('mount/..data'));
        symlinkSync('..data/server.yaml', scratch.path('mount/server.yaml'));
        return scratch.path('mount/server.yaml');
      },
    });
    symlinkSync('../v2', fleet.scratch.path('mount/..tmp'));
    renameSync(fleet.scratch.path('mount/..tmp'), fleet.scratch.path('mount/..data'));
    const names = async () =>
      (await adminGet<ListView<ModelSummaryView>>(fleet.urls, 'models')).items.map(({ name }) => name);
    // Where nothing tells of the change the file is looked at every five seconds.
    await waitFor(async () => (await names()).length === 2, { deadlineMs: 30_000, what: 'the second model' });
    rmSync(fleet.scratch.path('mount/server.yaml'));
    const gone = await waitFor(async () => (await fleet.events('ConfigRefused'))[0], {
      deadlineMs: 30_000,
      what: 'the missing file',
    });
    expect(gone.reason.message).toContain('no such file');
    expect(await names()).toEqual(['m1', 'm2']);
  });

  it('keeps the old copy when the new profile cannot start, says why, and goes back with the file', async () => {
    const path = await start(file({ name: 'm1' }));
    await fleet.serves('m1');
    const before = await fleet.identity('m1');
    writeFileSync(path, file({ name: 'm1', bad: true }));
    await waitFor(async () => (await copies('m1')).some((one) => one.reason?.code === 'failed'), {
      deadlineMs: 60_000,
      what: 'the new copy to fail',
    });
    expect(await streamed(fleet.urls.client, 'm1', 3)).toBe('whole');
    writeFileSync(path, file({ name: 'm1' }));
    await fleet.serves('m1');
    expect(await fleet.identity('m1')).toEqual(before);
  });

  it('lets a removed model finish its streams, and refuses new requests for it', async () => {
    const path = await start(file({ name: 'm1' }, { name: 'm2' }));
    await fleet.serves('m1', 'm2');
    const open = Array.from({ length: 4 }, () => streamed(fleet.urls.client, 'm1', 100));
    await waitFor(async () => (await copies('m1'))[0]?.inflight === 4, {
      deadlineMs: 20_000,
      what: 'the streams to run',
    });
    writeFileSync(path, file({ name: 'm2' }));
    await waitFor(async () => (await streamed(fleet.urls.client, 'm1', 3)).startsWith('404'), {
      deadlineMs: 30_000,
      what: 'm1 to be unknown',
    });
    expect(new Set(await Promise.all(open))).toEqual(new Set(['whole']));
    await fleet.serves('m2');
  });

  it('is scaled and restarted with a wait for the end; without room a restart needs leave', async () => {
    await start(file({ name: 'm1' }));
    await fleet.serves('m1');
    const up = await fleet.ctl('scale', 'm1', '3', '--wait');
    expect([up.code, up.stderr]).toEqual([0, expect.stringMatching(/m1: 1 of 3 Ready/)]);
    expect((await copies('m1')).filter(({ published }) => published)).toHaveLength(3);

    // Every device is taken: there is no place beside an old copy.
    const before = await fleet.identity('m1');
    const still = fleet.ctlProcess('restart', 'm1', '--wait');
    await waitFor(() => still.stderr.includes('no room for the new copy beside the old one'), {
      deadlineMs: 20_000,
      what: 'the word that nothing is spare',
    });
    still.signal('SIGINT');
    expect((await still.ended()).code).toBe(130);
    expect(still.stderr).toContain('the restart goes on');
    expect(await fleet.identity('m1')).toEqual(before);
    const traffic = new Traffic(fleet, 'm1', { long: 3, longTokens: 60, perSecond: 5 });
    const restarted = await fleet.ctl('restart', 'm1', '--allow-gap', '--wait');
    expect(restarted.code, restarted.stderr).toBe(0);
    expect(await traffic.end()).toEqual({ long: new Set(['whole']), short: new Set(['whole']) });
    expect(traffic.fewestReady).toBe(2);
    expect((await fleet.identity('m1')).filter((one) => before.includes(one))).toEqual([]);

    const down = await fleet.ctl('scale', 'm1', '1', '--wait');
    expect(down.code).toBe(0);
    expect(await copies('m1')).toHaveLength(1);
  });
});
