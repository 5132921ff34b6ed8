import { spawnSync } from 'node:child_process';
import { afterAll, afterEach, describe, expect, it } from 'vitest';
import { systemProcessTable } from '../../src/agent/process-table.js';
import { LlmgwProcess, Scratch } from '../support/llmgw-process.js';
import { waitFor } from '../support/wait-for.js';

/** A process namespace, as a container has. */
const UNSHARE = ['unshare', '--fork', '--pid', '--mount-proc', '--kill-child'];
const canUnshare = spawnSync('unshare', [...UNSHARE.slice(1), 'true']).status === 0;
const ANY_PORT = ['--listen', '--admin-listen', '--agent-listen'].flatMap((flag) => [flag, '127.0.0.1:0']);

/** The kernel gives process 1 no default for a signal: what it does not handle itself never ends it. */
describe.skipIf(!canUnshare)('as process 1 of a container', () => {
  const scratch = new Scratch();
  const table = systemProcessTable();
  const started: LlmgwProcess[] = [];
  afterEach(async () => {
    for (const one of started.splice(0)) {
      // SIGTERM would reach only the maker of the namespace, which passes nothing on; its end takes everything along.
      one.signal('SIGKILL');
      await one.ended();
    }
  });
  afterAll(() => scratch.remove());

  function start(...args: string[]): LlmgwProcess {
    const one = new LlmgwProcess(args, {}, scratch.dir, undefined, UNSHARE);
    started.push(one);
    return one;
  }
  /** Sends the signal to process 1 itself, as a container's runtime does. */
  function signal(one: LlmgwProcess, name: NodeJS.Signals): void {
    const inner = table.list().find(({ parentPid }) => parentPid === one.pid);
    if (inner === undefined) throw new Error('no process 1');
    process.kill(inner.pid, name);
  }
  const server = (): LlmgwProcess =>
    start('server', '--endpoint', 'e1=http://127.0.0.1:1=m1', ...ANY_PORT, '--state-dir', scratch.path('s'));
  const agent = (): LlmgwProcess =>
    start('agent', '--server', '127.0.0.1:1', '--state-dir', scratch.path('a'));

  it.each(['SIGTERM', 'SIGINT'] as const)('the server ends in order on %s', async (name) => {
    const one = server();
    await one.logged('server is up');
    signal(one, name);
    expect(await one.ended()).toEqual({ code: 0, signal: null });
  });

  it.each(['SIGTERM', 'SIGINT'] as const)('the agent ends in order on %s', async (name) => {
    const one = agent();
    await waitFor(() => one.log.some(({ msg }) => msg?.startsWith('no link to the server') === true), {
      deadlineMs: 30_000,
      what: 'the agent to run',
    });
    signal(one, name);
    expect(await one.ended()).toEqual({ code: 0, signal: null });
  });

  it('a start that fails is told by the exit code', async () => {
    expect((await start('server', ...ANY_PORT).ended()).code).toBe(2);
    expect((await start('agent', '--server', 'nonsense').ended()).code).toBe(2);
  });
});
