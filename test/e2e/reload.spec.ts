import { mkdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { ListView } from '../../src/admin-api/views/answers.js';
import type { ModelSummaryView } from '../../src/admin-api/views/models.js';
import type { ReplicaSummaryView } from '../../src/admin-api/views/replicas.js';
import type { EventView, StatusView } from '../../src/admin-api/views/status.js';
import {
  adminGet,
  LlmgwProcess,
  Scratch,
  startServerProcess,
  type ServerUrls,
} from '../support/llmgw-process.js';
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

const AGENT = `
gpus:
  driver: static
  static:
${[0, 1, 2].map((n) => `    - { uuid: GPU-${n}, type: sim-80g, memory: 80GiB }`).join('\n')}
`;

async function stream(url: string, name: string, maxTokens: number): Promise<string> {
  const response = await fetch(`${url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({
      model: name,
      stream: true,
      max_tokens: maxTokens,
      ignore_eos: true,
      messages: [{ role: 'user', content: 'go on' }],
    }),
  });
  const text = await response.text();
  return response.status === 200 && text.endsWith('data: [DONE]\n\n')
    ? 'whole'
    : `${response.status} ${text.slice(-300)}`;
}

describe('a configuration that changes while requests run', () => {
  let scratch: Scratch;
  let server: LlmgwProcess;
  let agent: LlmgwProcess;
  let urls: ServerUrls;

  const replicas = async (name?: string): Promise<readonly ReplicaSummaryView[]> =>
    (await adminGet<ListView<ReplicaSummaryView>>(urls, 'replicas')).items.filter(
      (replica) => name === undefined || replica.model === name,
    );
  const identity = async (name: string): Promise<readonly string[]> =>
    (await replicas(name)).map(({ id, generation }) => `${id}@${generation}`);
  const events = async (type: string): Promise<readonly EventView[]> =>
    (await adminGet<ListView<EventView>>(urls, `events?type=${type}`)).items;
  const settled = (...names: readonly string[]): Promise<unknown> =>
    waitFor(
      async () => {
        const now = await replicas();
        return now.length === names.length && now.every((one) => one.published && names.includes(one.model));
      },
      { deadlineMs: 60_000, what: `one Ready replica of each of ${names.join(', ')} and nothing else` },
    );
  const ctl = (...words: readonly string[]): Promise<{ code: number; stdout: string; stderr: string }> =>
    new Promise((resolve) => {
      execFile(
        process.execPath,
        [join(import.meta.dirname, '../../dist/main.js'), 'ctl', '--server', urls.admin, ...words],
        { env: { PATH: process.env['PATH'], NO_COLOR: '1' } },
        (error, stdout, stderr) => resolve({ code: Number(error?.code ?? 0), stdout, stderr }),
      );
    });

  const start = async (path: string): Promise<void> => {
    const started = await startServerProcess(scratch, ['--config', path]);
    server = started.process;
    urls = started.urls;
    agent = new LlmgwProcess(
      [
        ...[
          'agent',
          '--server',
          urls.agent,
          '--node-id',
          'n1',
          '--config',
          scratch.file('agent.yaml', AGENT),
        ],
        ...['--state-dir', scratch.path('agent')],
      ],
      { LLMGW_ON_EXIT: 'stop' },
      scratch.dir,
    );
  };

  beforeEach(() => {
    scratch = new Scratch();
  });

  afterEach(async () => {
    await agent.dispose();
    await server.dispose();
    scratch.remove();
  });

  it('rolls the model that changed, cuts nothing, and leaves the other alone', async () => {
    const path = scratch.file('server.yaml', file({ name: 'm1' }, { name: 'm2' }));
    await start(path);
    await settled('m1', 'm2');
    const [m1, m2] = [await identity('m1'), await identity('m2')];

    const long = ['m1', 'm2'].flatMap((name) =>
      Array.from({ length: 8 }, () => stream(urls.client, name, 400)),
    );
    const short: Promise<string>[] = [];
    let fewestReady = Infinity;
    let stop = false;
    const traffic = (async () => {
      while (!stop) {
        short.push(stream(urls.client, 'm1', 3), stream(urls.client, 'm2', 3));
        fewestReady = Math.min(fewestReady, (await replicas('m1')).filter((one) => one.published).length);
        await new Promise((resolve) => setTimeout(resolve, 200));
      }
    })();

    writeFileSync(path, `# only m1\n${file({ name: 'm2' }, { name: 'm1', tpotMs: 40 })}`);
    await waitFor(async () => (await identity('m1')).every((one) => !m1.includes(one)), {
      deadlineMs: 90_000,
      what: 'the old copy of m1 to be gone',
    });
    stop = true;
    await traffic;

    expect(new Set(await Promise.all([...long, ...short]))).toEqual(new Set(['whole']));
    expect(fewestReady).toBeGreaterThanOrEqual(1);
    expect(await identity('m2')).toEqual(m2);
    await settled('m1', 'm2');
    expect(await events('ConfigReloaded')).toHaveLength(1);
  });

  it('takes one reload from three saves in a row, nothing from comments, and refuses a broken file', async () => {
    const path = scratch.file('server.yaml', file({ name: 'm1' }));
    await start(path);
    await settled('m1');
    const before = await identity('m1');

    // What editors do: empty, half, whole, by renaming.
    writeFileSync(path, '');
    writeFileSync(path, file({ name: 'm1' }, { name: 'm2' }).slice(0, 90));
    writeFileSync(`${path}.new`, file({ name: 'm1' }, { name: 'm2' }));
    renameSync(`${path}.new`, path);
    await settled('m1', 'm2');
    expect(await events('ConfigReloaded')).toHaveLength(1);
    expect(await events('ConfigRefused')).toEqual([]);

    writeFileSync(path, `${file({ name: 'm1' }, { name: 'm2' })}\nrouter: { bodyLimt: 1MiB }\n`);
    const refused = await waitFor(async () => (await events('ConfigRefused'))[0], { what: 'the refusal' });
    expect(refused.reason.message).toMatch(
      /server\.yaml:\d+:11: router\.bodyLimt: .*did you mean.*bodyLimit/,
    );
    const status = await adminGet<StatusView>(urls, 'status');
    expect(status.config.problems).toMatchObject([{ source: path, column: 11, path: 'router.bodyLimt' }]);
    const reload = await ctl('config', 'reload');
    expect(reload.code).toBe(2);
    expect(reload.stderr).toMatch(/server\.yaml:\d+:11/);

    writeFileSync(path, `# a comment\n${file({ name: 'm2' }, { name: 'm1' })}`);
    await waitFor(async () => (await adminGet<StatusView>(urls, 'status')).config.lastError === undefined, {
      what: 'the file to be valid again',
    });
    server.signal('SIGHUP');
    await server.logged('the configuration was read again and has not changed');
    expect(await identity('m1')).toEqual(before);
  });

  it('is planned with exit codes of its own, and one replica restarts with a new copy first', async () => {
    const path = scratch.file('server.yaml', file({ name: 'm1' }, { name: 'm2' }));
    await start(path);
    await settled('m1', 'm2');
    const plan = (name: string, text: string) => ctl('plan', '-f', scratch.file(name, text));
    const same = await plan('same.yaml', `# only a comment\n${file({ name: 'm2' }, { name: 'm1' })}`);
    expect([same.code, same.stdout]).toEqual([0, 'nothing would change\n']);
    const rolls = await plan('other.yaml', file({ name: 'm1', tpotMs: 40 }, { name: 'm2' }));
    expect(rolls.code).toBe(1);
    expect(rolls.stdout).toMatch(/m1 \(new 1\) +starts +n1[^]*m1 \(new 1\) +serves[^]*leaves[^]*stopped/);
    expect(rolls.stdout).not.toMatch(/m2 \(new/);
    const wrong = await plan('wrong.yaml', 'models: 7\n');
    expect([wrong.code, wrong.stdout]).toEqual([2, '']);
    expect(wrong.stderr).toContain('wrong.yaml:1:9: models');

    const [m1, m2] = [await identity('m1'), await identity('m2')];
    const id = m1[0]?.split('@')[0] ?? '';
    let fewestReady = Infinity;
    let stop = false;
    const looking = (async () => {
      while (!stop)
        fewestReady = Math.min(fewestReady, (await replicas('m1')).filter((one) => one.published).length);
    })();
    const restarted = await ctl('restart', id, '--wait', '-o', 'json');
    stop = true;
    await looking;
    expect(restarted.code).toBe(0);
    expect(JSON.parse(restarted.stdout)).toMatchObject({ model: 'm1', replica: id, changed: true });
    expect(fewestReady).toBeGreaterThanOrEqual(1);
    expect(await identity('m1')).not.toEqual(m1);
    expect(await identity('m2')).toEqual(m2);
  });

  it('follows a link that is swapped, as mounted volumes do', async () => {
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
    await start(scratch.path('mount/server.yaml'));
    symlinkSync('../v2', scratch.path('mount/..tmp'));
    renameSync(scratch.path('mount/..tmp'), scratch.path('mount/..data'));
    const names = async () =>
      (await adminGet<ListView<ModelSummaryView>>(urls, 'models')).items.map(({ name }) => name);
    await waitFor(async () => (await names()).length === 2, { what: 'the second model' });
    rmSync(scratch.path('mount/server.yaml'));
    const gone = await waitFor(async () => (await events('ConfigRefused'))[0], { what: 'the missing file' });
    expect(gone.reason.message).toContain('no such file');
    expect(await names()).toEqual(['m1', 'm2']);
  });

  it('keeps the old copy when the new profile cannot start, says why, and goes back with the file', async () => {
    const path = scratch.file('server.yaml', file({ name: 'm1' }));
    await start(path);
    await settled('m1');
    const before = await identity('m1');
    writeFileSync(path, file({ name: 'm1', bad: true }));
    await waitFor(async () => (await replicas('m1')).some((one) => one.reason?.code === 'failed'), {
      deadlineMs: 60_000,
      what: 'the new copy to fail',
    });
    expect(await stream(urls.client, 'm1', 3)).toBe('whole');
    writeFileSync(path, file({ name: 'm1' }));
    await settled('m1');
    expect(await identity('m1')).toEqual(before);
  });

  it('lets a removed model finish its streams, and refuses new requests for it', async () => {
    const path = scratch.file('server.yaml', file({ name: 'm1' }, { name: 'm2' }));
    await start(path);
    await settled('m1', 'm2');
    const open = Array.from({ length: 4 }, () => stream(urls.client, 'm1', 100));
    await waitFor(async () => (await replicas('m1'))[0]?.inflight === 4, { what: 'the streams to run' });
    writeFileSync(path, file({ name: 'm2' }));
    await waitFor(async () => (await stream(urls.client, 'm1', 3)).startsWith('404'), {
      what: 'm1 to be unknown',
    });
    expect(new Set(await Promise.all(open))).toEqual(new Set(['whole']));
    await settled('m2');
  });
});
