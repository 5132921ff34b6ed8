import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:net';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  AgentWorld,
  freePort,
  profile,
  program,
  startCommand,
} from '../../test/support/agent/agent-world.js';
import { FakeGateway } from '../../test/support/agent/fake-gateway.js';
import { waitFor } from '../../test/support/wait-for.js';
import { AgentEngineConfig, type AgentConfig } from '../config/agent-config.js';
import type { ShardPhase, ShardReport } from '../domain/cluster.js';
import type { AgentTimings } from './limits.js';
import { systemProcessTable } from './process-table.js';

describe('a shard', () => {
  let world: AgentWorld;
  let gateway: FakeGateway;
  let config: AgentConfig;

  beforeEach(async () => {
    world = new AgentWorld();
    gateway = await FakeGateway.listen();
    config = world.config(gateway.address);
  });
  afterEach(async () => {
    await world.dispose();
    gateway.close();
  });

  async function agent(timings: Partial<AgentTimings> = {}): Promise<void> {
    await world.start(config, timings);
    await waitFor(() => gateway.lastReport);
  }
  const inPhase = (phase: ShardPhase, shardId = 'r1-0'): Promise<ShardReport> =>
    gateway.waitForShard(shardId, phase, (shard) => shard.phase === phase);
  const phasesSeen = (): ShardPhase[] =>
    gateway.reports
      .flatMap((report) => report.shards.map(({ phase }) => phase))
      .filter((phase, index, all) => phase !== all[index - 1]);

  it('is Ready only after a token, though port, model list and health were there before', async () => {
    await agent();
    // The token itself takes long enough to be reported as a stage of its own: refusals before it are too short for that.
    const args = ['--listen-at', '100', '--health-at', '300', '--token-at', '700', '--token-takes', '1000'];
    gateway.start(startCommand(await freePort(), { profile: profile({ args }) }));
    const ready = await inPhase('ready');
    expect(ready.loadMs).toBeGreaterThanOrEqual(1_690);
    const seen = phasesSeen();
    expect(seen).toContain('loading');
    expect(seen).toContain('probing');
    expect(seen.at(-1)).toBe('ready');
  });

  it('is never Ready with another model than the one asked for', async () => {
    await agent();
    const args = ['--serve-model', 'other'];
    gateway.start(startCommand(await freePort(), { profile: profile({ args }) }));
    expect(await inPhase('exited')).toMatchObject({
      verdict: 'modelMismatch',
      message: 'expected model m1, the engine serves other',
    });
    expect(phasesSeen()).not.toContain('ready');
  });

  it('fails without progress after the start timeout, not before while there is progress', async () => {
    await agent();
    gateway.start(
      startCommand(await freePort(), {
        profile: profile({
          startTimeoutMs: 400,
          args: ['--listen-at', '60000', '--say', 'Waiting for peers'],
        }),
      }),
    );
    const stuck = await inPhase('exited');
    expect(stuck).toMatchObject({ verdict: 'noProgress' });
    // vLLM 0.32 without weights: the engine core ends with this line, and the API server stays.
    const why = 'RuntimeError: Cannot find any model weights with `/models/x`';
    gateway.start(
      startCommand(await freePort(), {
        generation: 2,
        profile: profile({ startTimeoutMs: 1_500, args: ['--listen-at', '60000', '--say', why] }),
      }),
    );
    const caused = await gateway.waitForShard(
      'r1-0',
      'its end',
      ({ phase, generation }) => phase === 'exited' && generation === 2,
    );
    expect(caused.verdict).toBe('missingWeights');
    expect(caused.message).toMatch(/^RuntimeError: Cannot find any model weights.*; then no progress for/);

    // A download that takes three times as long as the timeout, but moves.
    const slow = new AgentEngineConfig();
    slow.binary = process.execPath;
    slow.baseArgs = [
      '-e',
      `let n = 0; const t = setInterval(() => {
         process.stderr.write('\\rDownloading shards: ' + (n += 10) + '%');
         if (n === 100) { clearInterval(t); process.argv.splice(1, 0, 'x'); import(${JSON.stringify(program('fake-engine.mjs'))}); }
       }, 450)`,
      '--',
      '--port',
      '{port}',
      '--model',
      '{model}',
    ];
    config.engines.command = slow;
    gateway.start(
      startCommand(await freePort(), {
        shardId: 'r2-0',
        replicaId: 'r2',
        profile: profile({ startTimeoutMs: 1_500 }),
      }),
    );
    const downloading = await inPhase('downloading', 'r2-0');
    expect(downloading.progress).toMatch(/Downloading shards: \d+%/);
    await inPhase('ready', 'r2-0');
  });

  it.each<[string, string[], Partial<ShardReport>]>([
    ['exit code', ['--exit-at', '30', '--exit-code', '5'], { verdict: 'crashed', exitCode: 5 }],
    ['exit without an error', ['--exit-at', '30'], { verdict: 'exitedCleanly', exitCode: 0 }],
    [
      'unknown flag',
      [
        '--say',
        'usage: x',
        '--say',
        'error: unrecognized arguments: --foo',
        '--exit-at',
        '30',
        '--exit-code',
        '2',
      ],
      { verdict: 'badFlag', message: 'error: unrecognized arguments: --foo' },
    ],
    [
      'gated repository',
      [
        '--say',
        'huggingface_hub.errors.GatedRepoError: 403 Client Error.',
        '--exit-at',
        '30',
        '--exit-code',
        '1',
      ],
      { verdict: 'gatedRepository' },
    ],
    ['missing interpreter', ['--exit-at', '30', '--exit-code', '127'], { verdict: 'binaryMissing' }],
  ])('tells an end by %s', async (_what, args, expected) => {
    await agent();
    gateway.start(startCommand(await freePort(), { profile: profile({ args }) }));
    expect(await inPhase('exited')).toMatchObject(expected);
  });

  it('is reported at once when its leader is killed, and nothing of it stays', async () => {
    const tree = new AgentEngineConfig();
    tree.binary = process.execPath;
    tree.baseArgs = [program('process-tree.mjs'), '--depth', '2'];
    config.engines.command = tree;
    await agent();
    gateway.start(startCommand(await freePort(), { rank: 1, shards: 2 }));
    const running = await inPhase('ready');
    const lines = await waitFor(() => {
      const log = readFileSync(join(config.stateDir, 'shards', 'r1-0', 'current.log'), 'utf8');
      const pids = [...log.matchAll(/^pid \d (\d+)$/gm)].map(([, pid]) => Number(pid));
      return pids.length === 3 && pids;
    });
    process.kill(running.pid ?? 0, 'SIGKILL');
    await gateway.waitForShard('r1-0', 'not ready', ({ phase }) => phase !== 'ready');
    expect(await inPhase('exited')).toMatchObject({ verdict: 'signalled', exitSignal: 'SIGKILL' });
    // Whoever adopted them may still have to reap them; they hold nothing any more.
    for (const pid of lines) expect(systemProcessTable().read(pid)?.zombie).not.toBe(false);
  });

  it('says which port is taken instead of starting', async () => {
    await agent();
    const port = await freePort();
    const holder: Server = createServer();
    await new Promise<void>((resolve) => {
      holder.listen(port, '127.0.0.1', resolve);
    });
    await waitFor(() => gateway.lastReport?.portsTaken.includes(port), { what: 'the port to be reported' });
    gateway.start(startCommand(port));
    expect(await inPhase('exited')).toMatchObject({
      verdict: 'portTaken',
      message: `port ${port} on 127.0.0.1 is held by process ${process.pid}`,
    });
    holder.close();
  });

  it.each<[string, () => void, Parameters<typeof startCommand>[1], Partial<ShardReport>]>([
    [
      'an engine this machine does not offer',
      () => {},
      { profile: profile({ engine: 'vllm' }) },
      { verdict: 'notAllowed', message: "engine vllm is not offered by this agent's file" },
    ],
    [
      'a program that is not there',
      () => {
        const gone = new AgentEngineConfig();
        gone.binary = '/nowhere/engine';
        config.engines.command = gone;
      },
      {},
      { verdict: 'binaryMissing', message: '/nowhere/engine is not an executable file' },
    ],
    [
      'a secret in the arguments',
      () => {},
      { profile: profile({ args: ['--api-key', 'sk-FAKE456789'] }) },
      { verdict: 'badFlag' },
    ],
    [
      'a denied flag',
      () => {
        config.engines.command?.denyArgs.push('--flood');
      },
      { profile: profile({ args: ['--flood', '1'] }) },
      { verdict: 'notAllowed' },
    ],
    ['a source outside the model roots', () => {}, { source: '/etc/passwd' }, { verdict: 'notAllowed' }],
    [
      'an environment that loads code',
      () => {},
      { profile: profile({ env: { LD_PRELOAD: { value: '/tmp/x.so' } } }) },
      { verdict: 'notAllowed', message: 'environment variable LD_PRELOAD may not be set by a profile' },
    ],
  ])('is refused for %s', async (_what, prepare, change, expected) => {
    prepare();
    await agent();
    gateway.start(startCommand(await freePort(), change));
    const refused = await inPhase('exited');
    expect(refused).toMatchObject(expected);
    expect(refused.pid).toBeUndefined();
  });

  it('hands over hostile strings exactly and shows no secret anywhere', async () => {
    const secretFile = join(world.directory, 'token');
    writeFileSync(secretFile, 'topsecretvalue\n');
    await agent();
    const hostile = ['$(touch ./pwned)', '`id`', 'a b', '--x="q"', '*'];
    const env = {
      HF_TOKEN: { value: 'hf_FAKE123' },
      MINE: { fromFile: secretFile },
      NEWLINE: { value: 'a\nb' },
    };
    gateway.start(
      startCommand(await freePort(), {
        profile: profile({
          args: ['--print-env', '--say', 'using sk-FAKE456789', '--', ...hostile],
          env,
        }),
      }),
    );
    const ready = await inPhase('ready');
    const log = readFileSync(join(config.stateDir, 'shards', 'r1-0', 'current.log'), 'utf8');
    const printed = JSON.parse(log.split('\n').find((line) => line.startsWith('{"argv"')) ?? '{}') as {
      argv: string[];
      env: Record<string, string>;
    };
    expect(printed.argv.slice(-hostile.length)).toEqual(hostile);
    expect(printed.env).toMatchObject({ MINE: 'topsecretvalue', HF_TOKEN: 'hf_FAKE123', NEWLINE: 'a\nb' });
    expect(Object.keys(printed.env)).not.toContain('VITEST');
    expect(readdirSync(join(config.stateDir, 'shards', 'r1-0', 'work'))).toEqual([]);
    expect(readFileSync(`/proc/${ready.pid}/cmdline`, 'utf8')).not.toMatch(/topsecret|hf_FAKE/);
    gateway.fetchLogs({
      requestId: 'q1',
      shardId: 'r1-0',
      tailLines: 0,
      follow: false,
      stop: false,
      previous: false,
    });
    const chunk = await waitFor(() => gateway.messages.find((message) => message.kind === 'log'));
    const shown = chunk.kind === 'log' ? Buffer.from(chunk.chunk.data).toString() : '';
    expect(shown).toContain('using [redacted]');
    const state = readFileSync(join(config.stateDir, 'agent-state.json'), 'utf8');
    for (const text of [shown, state, ...world.log]) expect(text).not.toMatch(/topsecretvalue|hf_FAKE123/);
  });

  it('is not blocked by its own flood of output, and its files stay bounded', async () => {
    await agent();
    const args = ['--flood', String(40 * 2 ** 20)];
    gateway.start(startCommand(await freePort(), { profile: profile({ args }) }));
    await inPhase('ready');
    const directory = join(config.stateDir, 'shards', 'r1-0');
    await waitFor(() => statSync(join(directory, 'current.log')).size < 17 * 2 ** 20, {
      what: 'the file to be cut',
    });
  });

  it('is killed after the grace when it ignores TERM', async () => {
    await agent();
    const args = ['--ignore-term'];
    gateway.start(startCommand(await freePort(), { profile: profile({ args }) }));
    const ready = await inPhase('ready');
    gateway.stop('r1-0', 1, 200);
    const stopped = await inPhase('exited');
    expect(stopped.verdict).toBe('stopped');
    expect(() => process.kill(ready.pid ?? 0, 0)).toThrow('ESRCH');
  });

  it('makes room for its next generation and takes no earlier one any more', async () => {
    await agent();
    gateway.start(startCommand(await freePort()));
    const first = await inPhase('ready');
    gateway.start(startCommand(await freePort(), { generation: 2 }));
    const second = await gateway.waitForShard(
      'r1-0',
      'ready again',
      (shard) => shard.generation === 2 && shard.phase === 'ready',
    );
    expect(second.pid).not.toBe(first.pid);
    expect(() => process.kill(first.pid ?? 0, 0)).toThrow('ESRCH');
    expect(await gateway.result(gateway.start(startCommand(1)))).toMatchObject({ outcome: 'refused' });
    expect(await gateway.result(gateway.stop('r1-0', 1, 100))).toMatchObject({ outcome: 'refused' });
    // A stop for a shard that is not there holds against a start that comes late.
    expect(await gateway.result(gateway.stop('r9-0', 3, 100))).toMatchObject({ outcome: 'already' });
    expect(
      await gateway.result(gateway.start(startCommand(1, { shardId: 'r9-0', generation: 3 }))),
    ).toMatchObject({ outcome: 'refused' });
  });

  it('is unhealthy when it is idle and answers no token, and is not restarted by the agent', async () => {
    const hanging = new AgentEngineConfig();
    hanging.binary = process.execPath;
    hanging.baseArgs = [
      '-e',
      `const http = require('node:http'); let hangs = false;
       http.createServer((req, res) => {
         if (req.url === '/metrics') return res.end('vllm:num_requests_running 0\\nvllm:generation_tokens_total 1\\n');
         if (req.url === '/v1/models') return res.end('{"data":[{"id":"m1"}]}');
         if (req.url === '/hang') hangs = true;
         if (req.method === 'POST' && hangs) return;
         res.end('{"choices":[{}]}');
       }).listen(+process.argv[1], '127.0.0.1')`,
      '{port}',
    ];
    config.engines.command = hanging;
    await agent({ canaryIntervalMs: 100, tokenTimeoutMs: 150 });
    const port = await freePort();
    gateway.start(startCommand(port));
    const ready = await inPhase('ready');
    // While it drains it is asked for nothing, or the question would look like work that is left.
    expect(await gateway.result(gateway.drain('r1-0', 1))).toMatchObject({ outcome: 'accepted' });
    await (await fetch(`http://127.0.0.1:${port}/hang`)).text();
    gateway.messages.length = 0;
    await waitFor(() => gateway.reports.length > 5, { what: 'heartbeats while it drains' });
    expect(phasesSeen()).toEqual(['ready']);
    gateway.drain('r1-0', 1, true);
    const hung = await inPhase('unhealthy');
    expect(hung).toMatchObject({ pid: ready.pid, verdict: 'hung' });
    expect(hung.message).toMatch(/idle, and 2 requests/);
  });

  // An engine that answers no new request for as long as it works was killed eight times a day; one that did not work any
  // more, and said that it was well, was never.
  it('is left alone while its counters move, and is hung when requests stand still or the process does', async () => {
    const busy = new AgentEngineConfig();
    busy.binary = process.execPath;
    busy.baseArgs = [
      '-e',
      `const http = require('node:http'); let posts = 0, tokens = 0, frozen = false;
       http.createServer((req, res) => {
         if (req.url === '/freeze') { frozen = true; return res.end(); }
         if (req.url === '/thaw') { frozen = false; return res.end(); }
         if (req.url === '/metrics') {
           if (!frozen) tokens += 1;
           return res.end('vllm:num_requests_running 1\\nvllm:generation_tokens_total ' + tokens + '\\n');
         }
         if (req.url === '/v1/models') return res.end('{"data":[{"id":"m1"}]}');
         if (req.method === 'POST' && ++posts > 1) return;
         if (posts > 0 && req.url === '/health') return;
         res.end('{"choices":[{}]}');
       }).listen(+process.argv[1], '127.0.0.1')`,
      '{port}',
    ];
    config.engines.command = busy;
    await agent({ stallMs: 1_500, canaryIntervalMs: 100, probeTimeoutMs: 700 });
    const port = await freePort();
    gateway.start(startCommand(port));
    const { pid } = await inPhase('ready');
    gateway.messages.length = 0;
    await waitFor(() => gateway.reports.length > 10, { what: 'heartbeats while it is busy' });
    expect(phasesSeen()).toEqual(['ready']);

    await fetch(`http://127.0.0.1:${port}/freeze`);
    expect(await inPhase('unhealthy')).toMatchObject({ pid, verdict: 'hung' });
    await fetch(`http://127.0.0.1:${port}/thaw`);
    await inPhase('ready');

    process.kill(pid ?? 0, 'SIGSTOP');
    expect(await inPhase('unhealthy')).toMatchObject({ pid, verdict: 'hung' });
    process.kill(pid ?? 0, 'SIGCONT');
    expect(await inPhase('ready')).toMatchObject({ pid, generation: 1 });
  });

  it('waits for a GPU that another shard holds, and says so without starting', async () => {
    config.gpus.driver = 'static';
    config.gpus.static = [{ uuid: 'GPU-0', type: 'T4' }];
    // Long enough for the other shard to end within it, on a busy machine too.
    await agent({ gpuWaitMs: 4_000 });
    const held = { gpuUuids: ['GPU-0'] };
    gateway.start(startCommand(await freePort(), held));
    await inPhase('ready');
    gateway.start(startCommand(await freePort(), { ...held, shardId: 'r2-0', replicaId: 'r2' }));
    const waiting = await inPhase('waitingForGpu', 'r2-0');
    expect(waiting.progress).toBe('gpu GPU-0 is still held by shard r1-0');
    expect(await inPhase('exited', 'r2-0')).toMatchObject({ verdict: 'gpuNotEmpty' });
    gateway.start(
      startCommand(await freePort(), { ...held, shardId: 'r2-0', replicaId: 'r2', generation: 2 }),
    );
    await inPhase('waitingForGpu', 'r2-0');
    gateway.stop('r1-0', 1, 1_000);
    await inPhase('ready', 'r2-0');
  });

  it('hands over all of a long output, however slowly it is read', async () => {
    await agent();
    const args = ['--flood', String(1_500_000)];
    gateway.start(startCommand(await freePort(), { profile: profile({ args }) }));
    await inPhase('ready');
    const fetchLog = (requestId: string, tailLines: number): void =>
      gateway.fetchLogs({
        requestId,
        shardId: 'r1-0',
        tailLines,
        follow: false,
        stop: false,
        previous: false,
      });
    const answered = async (requestId: string): Promise<string> => {
      const chunks = await waitFor(() => {
        const seen = gateway.messages.flatMap((message) =>
          message.kind === 'log' && message.chunk.requestId === requestId ? [message.chunk] : [],
        );
        return seen.at(-1)?.end === true && seen;
      });
      return chunks.map(({ data }) => Buffer.from(data).toString()).join('');
    };
    // The engine is Ready while it still writes; only what is written can be handed over.
    let asked = 0;
    await waitFor(async () => {
      asked += 1;
      fetchLog(`end-${asked}`, 1);
      return (await answered(`end-${asked}`)).endsWith('flood over\n');
    });
    gateway.streams.at(-1)?.pause();
    fetchLog('all', 0);
    gateway.streams.at(-1)?.resume();
    const text = await answered('all');
    expect(text.length).toBeGreaterThan(1_490_000);
    expect(text).toMatch(/flood over\n$/);
  });

  it('shows its output, follows it, and keeps the run before', async () => {
    await agent();
    const say = (...texts: string[]) => texts.flatMap((text) => ['--say', text]);
    gateway.start(startCommand(await freePort(), { profile: profile({ args: say('one', 'two') }) }));
    await inPhase('ready');
    const request = { shardId: 'r1-0', follow: false, stop: false, previous: false };
    const answer = (requestId: string): string =>
      gateway.messages
        .flatMap((message) =>
          message.kind === 'log' && message.chunk.requestId === requestId ? [message] : [],
        )
        .map(
          ({ chunk }) =>
            `${Buffer.from(chunk.data).toString()}${chunk.end ? `<end>${chunk.error ?? ''}` : ''}`,
        )
        .join('');
    gateway.fetchLogs({ ...request, requestId: 'a', tailLines: 1 });
    await waitFor(() => answer('a') === 'two\n<end>', { what: 'the last line' });
    gateway.fetchLogs({ ...request, requestId: 'f', tailLines: 0, follow: true });
    await waitFor(() => answer('f') === 'one\ntwo\n', { what: 'the lines so far' });
    gateway.start(
      startCommand(await freePort(), {
        generation: 2,
        profile: profile({ args: say('three', '\u001b[31mred') }),
      }),
    );
    await waitFor(() => answer('f').endsWith('<end>'), { what: 'the end of the run' });
    await gateway.waitForShard('r1-0', 'ready', (shard) => shard.generation === 2 && shard.phase === 'ready');
    gateway.fetchLogs({ ...request, requestId: 'p', tailLines: 0, previous: true });
    await waitFor(() => answer('p') === 'one\ntwo\n<end>', { what: 'the run before' });
    gateway.fetchLogs({ ...request, requestId: 'c', tailLines: 0 });
    await waitFor(() => answer('c') === 'three\nred\n<end>', { what: 'the present run' });
    gateway.fetchLogs({ ...request, requestId: 'n', shardId: 'nobody', tailLines: 0 });
    await waitFor(() => answer('n') === '<end>shard nobody has no output here');
  });
});
