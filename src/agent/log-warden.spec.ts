import {
  appendFileSync,
  closeSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { AgentPrograms, killed } from '../../test/support/agent/agent-process.js';
import { AgentWorld, freePort, profile, startCommand } from '../../test/support/agent/agent-world.js';
import { FakeGateway } from '../../test/support/agent/fake-gateway.js';
import { waitFor } from '../../test/support/wait-for.js';
import { cutFile } from './log-cut.js';
import { tendLogs, WARDEN_LOCK } from './log-warden.js';
import { systemProcessTable } from './process-table.js';
import { RunLog } from './run-log.js';
import { lockHolder } from './state-lock.js';

const processes = systemProcessTable();

describe('one look of the log warden', () => {
  let shards: string;
  let log: string;

  beforeEach(() => {
    shards = mkdtempSync(join(tmpdir(), 'llmgw-warden-'));
    mkdirSync(join(shards, 'r1-0'));
    log = RunLog.currentFile(join(shards, 'r1-0'));
  });
  afterEach(() => rmSync(shards, { recursive: true, force: true }));

  it('keeps the end of what outgrew its bound, under a writer that goes on', async () => {
    const writer = openSync(log, 'a');
    appendFileSync(writer, `${'a'.repeat(250)}${'b'.repeat(100)}`);
    expect(await tendLogs(shards, 100)).toBe(true);
    expect(readFileSync(cutFile(log), 'utf8')).toBe('b'.repeat(100));
    appendFileSync(writer, 'on');
    expect(readFileSync(log, 'utf8')).toBe('on');
    closeSync(writer);
  });

  it('leaves alone what an agent that reads would cut itself', async () => {
    writeFileSync(log, 'x'.repeat(200));
    await tendLogs(shards, 100);
    expect(statSync(log).size).toBe(200);
  });

  it('has nothing to do without logs, and no task without the directory', async () => {
    expect(await tendLogs(shards, 100)).toBe(true);
    expect(await tendLogs(join(shards, 'gone'), 100)).toBe(false);
  });
});

describe('engines without an agent', () => {
  const LIMIT_BYTES = 100_000;
  let programs: AgentPrograms;
  let world: AgentWorld;
  let gateway: FakeGateway;

  beforeAll(() => {
    programs = AgentPrograms.compile();
    // On a busy machine compiling takes longer than hooks are given.
  }, 60_000);
  afterAll(() => programs.dispose());
  beforeEach(async () => {
    world = new AgentWorld();
    gateway = await FakeGateway.listen();
  });
  afterEach(async () => {
    await programs.killAll();
    const config = world.config(gateway.address, (change) => (change.onExit = 'stop'));
    await (await world.start(config)).close();
    await world.dispose();
    gateway.close();
  });

  it('have bounded logs, outlive the warden, and the warden ends after them', async () => {
    const config = world.config(gateway.address);
    const timings = { logFileMaxBytes: LIMIT_BYTES, wardenCheckMs: 50 };
    const agent = await programs.start(config, timings);
    await waitFor(() => gateway.lastReport);
    const port = await freePort();
    gateway.start(startCommand(port, { profile: profile({ args: ['--pour', '2000'] }) }));
    const { pid = 0 } = await gateway.waitForShard('r1-0', 'ready', ({ phase }) => phase === 'ready');
    const warden = await waitFor(() => lockHolder(config.stateDir, processes, WARDEN_LOCK), {
      what: 'a warden',
    });
    const wardenLives = (): boolean => processes.read(warden)?.zombie === false;
    const serves = async (): Promise<boolean> => (await fetch(`http://127.0.0.1:${port}/health`)).ok;
    await killed(agent);

    const log = RunLog.currentFile(join(config.stateDir, 'shards', 'r1-0'));
    const cutBefore = statSync(log).birthtimeMs;
    rmSync(cutFile(log), { force: true });
    await waitFor(() => statSync(cutFile(log), { throwIfNoEntry: false })?.size === LIMIT_BYTES, {
      what: 'a cut without an agent',
      deadlineMs: 20_000,
    });
    // Emptied in place: the engine still writes to this very file.
    expect(statSync(log).birthtimeMs).toBe(cutBefore);
    expect(await serves()).toBe(true);

    process.kill(warden, 'SIGKILL');
    await waitFor(() => !wardenLives(), { what: 'the end of the warden' });
    const size = statSync(log).size;
    await waitFor(() => statSync(log).size > size, { what: 'more output without anybody' });
    expect(await serves()).toBe(true);

    await programs.start(config, timings);
    const next = await waitFor(() => lockHolder(config.stateDir, processes, WARDEN_LOCK), {
      what: 'another warden',
    });
    expect(next).not.toBe(warden);
    await programs.killAll();
    process.kill(pid, 'SIGKILL');
    await waitFor(() => processes.read(next)?.zombie !== false, {
      what: 'a warden without work to end',
      deadlineMs: 30_000,
    });
  }, 90_000);
});
