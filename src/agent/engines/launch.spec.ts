import { mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { profile, startCommand } from '../../../test/support/agent/agent-world.js';
import { AgentEngineConfig } from '../../config/agent-config.js';
import type { EngineKind, Profile } from '../../domain/model-spec.js';
import type { StartShardCommand } from '../../domain/plan.js';
import { commandDriver } from './command.js';
import { isRefusal, type EngineDriver } from './driver.js';
import { planLaunch, type Launch, type LaunchSettings } from './launch.js';
import { llamacppDriver } from './llamacpp.js';
import { sglangDriver } from './sglang.js';
import { vllmDriver } from './vllm.js';

const GIB = 2 ** 30;
const GPUS = ['GPU-0000', 'GPU-1111'];
const DRIVERS: Readonly<Partial<Record<EngineKind, EngineDriver>>> = {
  vllm: vllmDriver,
  sglang: sglangDriver,
  llamacpp: llamacppDriver,
  command: commandDriver,
};

describe('planLaunch', () => {
  let root: string;
  let bin: string;
  let models: string;

  beforeAll(() => {
    root = realpathSync(mkdtempSync(join(tmpdir(), 'llmgw-launch-')));
    bin = join(root, 'bin');
    models = join(root, 'models');
    mkdirSync(bin);
    for (const name of ['vllm', 'python3', 'sglang', 'llama-server', 'rpc-server', 'engine'])
      writeFileSync(join(bin, name), '#!/bin/sh\n', { mode: 0o755 });
    mkdirSync(join(models, 'Qwen', 'Qwen3-8B'), { recursive: true });
    writeFileSync(join(models, 'one.gguf'), '');
    mkdirSync(join(models, 'split'));
    for (const part of ['00001', '00002'])
      writeFileSync(join(models, 'split', `m-${part}-of-00002.gguf`), '');
    mkdirSync(join(models, 'many'));
    for (const name of ['a.gguf', 'b.gguf']) writeFileSync(join(models, 'many', name), '');
    symlinkSync('/etc', join(models, 'way-out'));
  });
  afterAll(() => rmSync(root, { recursive: true, force: true }));

  function plan(
    engine: EngineKind,
    change: {
      profile?: Partial<Profile>;
      start?: Partial<StartShardCommand>;
      config?: Partial<AgentEngineConfig>;
    },
    settings: Partial<LaunchSettings> = {},
  ) {
    const driver = DRIVERS[engine];
    if (driver === undefined) throw new Error('no driver');
    const config = Object.assign(new AgentEngineConfig(), change.config);
    const start = startCommand(20_001, {
      source: 'Qwen/Qwen3-32B',
      ...change.start,
      profile: profile({ engine, ...change.profile }),
    });
    return planLaunch(driver, config, start, {
      modelRoots: [models],
      bindHost: '10.0.0.1',
      ownEnv: { PATH: bin, HOME: '/home/llm', SSH_AUTH_SOCK: '/secret', HF_HOME: '/data/hf' },
      ...settings,
    });
  }
  async function launched(...args: Parameters<typeof plan>): Promise<Launch> {
    const launch = await plan(...args);
    if (isRefusal(launch)) throw new Error(launch.message);
    return launch;
  }
  /** The command line and environment as a person would write them down. */
  const written = ({ file, args, env }: Launch): string =>
    [
      file,
      ...args,
      '',
      ...Object.entries(env)
        .map(([name, value]) => `${name}=${value}`)
        .sort((a, b) => (a < b ? -1 : 1)),
      '',
    ]
      .join('\n')
      .replaceAll(root, '$ROOT');

  const gang = (rank: number): Partial<StartShardCommand> => ({
    rank,
    shards: 2,
    gpuUuids: GPUS,
    ports: { http: 20_001 + rank, rendezvous: 20_100 },
    peers: [
      { rank: 0, address: '10.0.0.1', ports: { http: 20_001, rendezvous: 20_100 } },
      { rank: 1, address: '10.0.0.2', ports: { http: 20_002, rendezvous: 20_100 } },
    ],
  });
  const nvidia: Partial<LaunchSettings> = {
    gpuVendor: 'nvidia',
    gpuIndices: [2, 5],
    gpuMemoryTotalBytes: 80 * GIB,
    interfaceName: 'eth1',
  };

  it.each<[string, () => Promise<Launch>]>([
    [
      'vllm-one-gpu',
      () =>
        launched(
          'vllm',
          {
            start: { gpuUuids: [GPUS[0] ?? ''], aliases: ['default'] },
            profile: {
              gpus: 1,
              gpuMemoryBytes: 40 * GIB,
              maxConcurrency: 64,
              args: ['--max-model-len', '32768'],
              env: { HF_TOKEN: { value: 'hf_x' } },
            },
          },
          { ...nvidia, gpuIndices: [2] },
        ),
    ],
    [
      'vllm-two-gpus-by-hand',
      () =>
        launched(
          'vllm',
          {
            start: { gpuUuids: GPUS, source: 'Qwen/Qwen3-8B' },
            profile: {
              gpus: 2,
              args: ['-pp=2', '--gpu-memory-utilization', '0.5', '--max_num_seqs=8'],
              maxConcurrency: 4,
            },
            config: { baseArgs: ['-m', 'vllm.entrypoints.openai.api_server'], binary: 'python3' },
          },
          nvidia,
        ),
    ],
    ['vllm-gang-rank-0', () => launched('vllm', { start: gang(0), profile: { gpus: 2, shards: 2 } }, nvidia)],
    ['vllm-gang-rank-1', () => launched('vllm', { start: gang(1), profile: { gpus: 2, shards: 2 } }, nvidia)],
    [
      'sglang-one-node',
      () =>
        launched(
          'sglang',
          {
            start: { gpuUuids: GPUS, source: 'org/model@v1.2' },
            profile: { gpus: 2, gpuMemoryBytes: 60 * GIB, maxConcurrency: 32 },
          },
          { ...nvidia, gpuVendor: 'amd' },
        ),
    ],
    [
      'sglang-gang-rank-0',
      () => launched('sglang', { start: gang(0), profile: { gpus: 2, shards: 2 } }, nvidia),
    ],
    [
      'sglang-gang-rank-1',
      () => launched('sglang', { start: gang(1), profile: { gpus: 2, shards: 2 } }, nvidia),
    ],
    [
      // One group over both nodes by hand, on devices that are named by UUID.
      'vllm-gang-amd',
      () =>
        launched(
          'vllm',
          {
            start: gang(1),
            profile: {
              gpus: 2,
              shards: 2,
              args: ['-tp', '4', '--enforce-eager'],
              env: { NCCL_IB_HCA: { value: 'mlx5' } },
            },
          },
          { gpuVendor: 'amd', interfaceName: 'eth1' },
        ),
    ],
    [
      'llamacpp-file',
      () =>
        launched('llamacpp', {
          start: { source: 'one.gguf' },
          profile: { maxConcurrency: 4, args: ['-c', '8192', '--jinja'] },
        }),
    ],
    [
      'llamacpp-repository',
      () =>
        launched(
          'llamacpp',
          {
            start: { source: 'unsloth/Qwen3-8B-GGUF:Q4_K_M', gpuUuids: [GPUS[0] ?? ''] },
            profile: { gpus: 1 },
          },
          nvidia,
        ),
    ],
    [
      'llamacpp-rpc-head',
      () =>
        launched(
          'llamacpp',
          { start: { ...gang(0), source: join(models, 'split') }, profile: { gpus: 2, shards: 2 } },
          nvidia,
        ),
    ],
    [
      'llamacpp-rpc-worker',
      () =>
        launched(
          'llamacpp',
          { start: { ...gang(1), source: 'one.gguf' }, profile: { gpus: 2, shards: 2 } },
          nvidia,
        ),
    ],
    [
      'command',
      () =>
        launched(
          'command',
          {
            start: { gpuUuids: GPUS, source: 'one.gguf' },
            profile: {
              gpus: 2,
              args: ['{"json": "{port}"}', '{unknown}', '$(id)'],
              env: { my_var: { value: 'a b' } },
            },
            config: {
              binary: 'engine',
              baseArgs: ['--listen={host}:{port}', '{source}'],
              env: { LOCAL: '1' },
            },
          },
          { gpuVendor: 'static' },
        ),
    ],
  ])('builds %s', async (name, make) => {
    await expect(written(await make())).toMatchFileSnapshot(`./golden/${name}.txt`);
  });

  it.each<[string, EngineKind, Parameters<typeof plan>[1], string, RegExp]>([
    [
      'a reserved flag',
      'vllm',
      { profile: { args: ['--port', '9999'] } },
      'badFlag',
      /--port is set by llmgw for engine vllm/,
    ],
    [
      'its short form',
      'llamacpp',
      { start: { source: 'one.gguf' }, profile: { args: ['-m', 'x'] } },
      'badFlag',
      /-m is set by llmgw/,
    ],
    [
      'its short form with the value glued to it',
      'vllm',
      { profile: { args: ['-r1'] } },
      'badFlag',
      /-r1 \(short for -r\) is set by llmgw/,
    ],
    [
      'a file outside the roots',
      'llamacpp',
      { start: { source: 'one.gguf' }, profile: { args: ['--chat-template-file', '/etc/shadow'] } },
      'notAllowed',
      /--chat-template-file is not allowed/,
    ],
    [
      'its beginning',
      'vllm',
      { profile: { args: ['--served-m=x'] } },
      'badFlag',
      /short for --served-model-name/,
    ],
    [
      'another spelling',
      'vllm',
      { profile: { args: ['--tensor_parallel_size=4', '--node_rank', '1'] } },
      'badFlag',
      /--node-rank is set/,
    ],
    [
      'foreign code',
      'vllm',
      { profile: { args: ['--trust-remote-code'] } },
      'notAllowed',
      /engines\.vllm\.allowArgs/,
    ],
    ['foreign code, cut short', 'sglang', { profile: { args: ['--trust-rem'] } }, 'notAllowed', /trust-rem/],
    ['a secret', 'sglang', { profile: { args: ['--my-api-key=x'] } }, 'badFlag', /would show a secret/],
    [
      'a value without a flag',
      'vllm',
      { profile: { args: ['other/model'] } },
      'badFlag',
      /belongs to no flag/,
    ],
    ['a NUL', 'vllm', { profile: { args: ['--x', 'a\0b'] } }, 'badFlag', /NUL/],
    [
      'a denied flag',
      'vllm',
      { profile: { args: ['--enforce-eager'] }, config: { denyArgs: ['--enforce-eager'] } },
      'notAllowed',
      /denyArgs/,
    ],
    [
      'a flag not listed',
      'vllm',
      { profile: { args: ['--enforce-eager'] }, config: { allowArgs: ['--max-model-len'] } },
      'notAllowed',
      /allowArgs/,
    ],
    ['a model name that is a flag', 'vllm', { start: { model: '--help' } }, 'notAllowed', /taken for a flag/],
    ['a source that is a flag', 'vllm', { start: { source: '--help' } }, 'notAllowed', /looks like a flag/],
    [
      'a source that is a command',
      'vllm',
      { start: { source: 'x; touch ./pwned' } },
      'notAllowed',
      /neither a path/,
    ],
    [
      'a path that is not there',
      'vllm',
      { start: { source: '/models/none' } },
      'missingWeights',
      /does not exist/,
    ],
    ['a path outside the roots', 'vllm', { start: { source: '/etc/passwd' } }, 'notAllowed', /outside/],
    ['a way out by dots', 'vllm', { start: { source: './../../../etc' } }, 'notAllowed', /outside/],
    ['a way out by a link', 'vllm', { start: { source: 'way-out/passwd' } }, 'notAllowed', /outside/],
    [
      'several models in one directory',
      'llamacpp',
      { start: { source: './many' } },
      'missingWeights',
      /a\.gguf, b\.gguf/,
    ],
    [
      'sizes that do not fit',
      'vllm',
      { profile: { gpus: 2, args: ['-tp', '4'] } },
      'badFlag',
      /use 4 GPUs, the profile gives 2/,
    ],
    [
      'sizes that do not fit',
      'sglang',
      { profile: { gpus: 2, args: ['--tp', '4'] } },
      'badFlag',
      /use 4 GPUs/,
    ],
    [
      'a gang without a rendezvous',
      'vllm',
      { start: { shards: 2 }, profile: { gpus: 1, shards: 2 } },
      'badFlag',
      /rendezvous/,
    ],
    ['no program named', 'command', {}, 'binaryMissing', /names no binary/],
    [
      'a program that is not there',
      'command',
      { config: { binary: 'nothing' } },
      'binaryMissing',
      /nothing is not an executable file in PATH/,
    ],
    [
      'server flags by environment',
      'llamacpp',
      { start: { source: 'one.gguf' }, profile: { env: { LLAMA_ARG_HOST: { value: '0.0.0.0' } } } },
      'notAllowed',
      /LLAMA_ARG_HOST/,
    ],
    [
      'devices by environment',
      'vllm',
      { profile: { env: { CUDA_VISIBLE_DEVICES: { value: '0' } } } },
      'notAllowed',
      /CUDA_VISIBLE_DEVICES/,
    ],
    [
      'a variable of no engine',
      'vllm',
      { profile: { env: { MY_VAR: { value: '0' } } } },
      'notAllowed',
      /MY_VAR/,
    ],
    [
      'a secret file that is not there',
      'vllm',
      { profile: { env: { HF_TOKEN: { fromFile: '/none' } } } },
      'notAllowed',
      /cannot be read/,
    ],
  ])('refuses %s (%s)', async (_what, engine, change, verdict, message) => {
    const launch = await plan(engine, change);
    expect(launch).toMatchObject({ verdict });
    expect(isRefusal(launch) ? launch.message : '').toMatch(message);
  });

  it("lets the agent's own file allow what is guarded, never what is reserved", async () => {
    const allowed = await plan('vllm', {
      profile: { args: ['--trust-remote-code'] },
      config: { allowArgs: ['--trust-remote-code', '--port'] },
    });
    expect(isRefusal(allowed)).toBe(false);
    const reserved = await plan('vllm', {
      profile: { args: ['--port', '1'] },
      config: { allowArgs: ['--port'] },
    });
    expect(reserved).toMatchObject({ verdict: 'badFlag' });
  });

  it('hides every GPU from a shard that has none', async () => {
    const { env } = await launched('command', { config: { binary: 'engine' } });
    expect(env).toMatchObject({
      CUDA_VISIBLE_DEVICES: '',
      ROCR_VISIBLE_DEVICES: '',
    });
  });

  it('names devices by UUID where their places cannot be told for sure', async () => {
    const { gpuIndices: _indices, ...unsure } = nvidia;
    const launch = await launched('vllm', { start: { gpuUuids: GPUS }, profile: { gpus: 2 } }, unsure);
    expect(launch.env['CUDA_VISIBLE_DEVICES']).toBe(GPUS.join(','));
  });

  it('knows which values are secrets', async () => {
    const launch = await launched('command', {
      config: { binary: 'engine', env: { LOCAL_TOKEN: 'localsecret', PLAIN: 'x' } },
      profile: { env: { HF_TOKEN: { value: 'hf_1' }, OTHER: { value: 'open' } } },
    });
    expect(launch.secrets).toEqual(['hf_1', 'localsecret']);
  });
});
