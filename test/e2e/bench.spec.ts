import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { SimEngine } from '../../src/engines/sim/sim-engine.js';
import { LlmgwProcess, Scratch, startServerProcess } from '../support/llmgw-process.js';
import { waitFor } from '../support/wait-for.js';

/** What of the report is looked at here. */
interface Report {
  readonly requests: number;
  readonly failures: number;
  readonly results: Readonly<Record<string, number>>;
  readonly cachedShare: number | null;
  readonly interrupted: boolean;
}

describe('llmgw bench through a server', () => {
  const scratch = new Scratch();
  const engine = new SimEngine({ models: ['m1'], seed: 7, tpotMs: 2 });
  let server: LlmgwProcess;
  let url: string;

  beforeAll(async () => {
    const port = await engine.start({ port: 0 });
    const started = await startServerProcess(scratch, ['--endpoint', `e1=http://127.0.0.1:${port}=m1`]);
    server = started.process;
    url = started.urls.client;
  });

  afterAll(async () => {
    await server.dispose();
    await engine.stop();
    scratch.remove();
  });

  const bench = (...args: string[]): LlmgwProcess =>
    new LlmgwProcess(['bench', '--url', url, '--model', 'm1', ...args], {}, scratch.dir);

  it('prints what it measured and ends with 0', async () => {
    const run = bench('--requests', '20', '--shape', 'shared-prefix', '--max-tokens', '4', '-o', 'json');
    expect(await run.ended(30_000)).toEqual({ code: 0, signal: null });
    const report = JSON.parse(run.stdout) as Report;
    expect(report).toMatchObject({ requests: 20, failures: 0, results: { ok: 20 }, interrupted: false });
    expect(report.cachedShare).toBeGreaterThan(0);
    expect(run.stderr).toBe('');
  });

  it('ends with 1 when more failed than allowed, and with 0 when not', async () => {
    const faulty = ['--requests', '10', '--max-tokens', '4', '--faults', 'status=400@100%'];
    const strict = bench(...faulty);
    expect((await strict.ended(30_000)).code).toBe(1);
    expect(strict.stdout).toMatch(/^400.* 10$/m);
    expect((await bench(...faulty, '--max-errors', '100%').ended(30_000)).code).toBe(0);
  });

  it('interrupted, prints what it has and ends with 130', async () => {
    const before = engine.stats().requests;
    const run = bench('--duration', '10m', '--rate', '50', '--max-tokens', '4');
    await waitFor(() => engine.stats().requests > before + 20, { deadlineMs: 30_000, what: 'load to run' });
    run.signal('SIGINT');
    expect(await run.ended(10_000)).toEqual({ code: 130, signal: null });
    expect(run.stdout).toMatch(/^\d+ requests in [\d.]+ s, interrupted: /);
  });

  it.each([
    [['--url', 'http://127.0.0.1:1', '--model', 'm'], 5, ''],
    [['--url', 'nowhere', '--model', 'm'], 2, '--url: expected a URL such as http://127.0.0.1:8080'],
    [['--url', 'http://127.0.0.1:1'], 2, '--url and --model are needed'],
    [['--url', 'http://127.0.0.1:1', '--model', 'm', '--shape', 'chatt'], 2, 'did you mean "chat"?'],
    [
      ['--url', 'http://127.0.0.1:1', '--model', 'm', '--duration', '5'],
      2,
      '--duration: expected a duration',
    ],
  ])('%s ends with %i', async (args, code, message) => {
    const run = new LlmgwProcess(['bench', ...args], {}, scratch.dir);
    expect((await run.ended(20_000)).code).toBe(code);
    expect(run.stderr).toContain(message);
  });
});
