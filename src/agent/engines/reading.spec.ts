import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { LoadProgress } from '../load-progress.js';
import { llamacppDriver } from './llamacpp.js';
import { readWork, SGLANG_METRICS, VLLM_METRICS } from './metrics.js';
import { inHubCache, lackOf, weightsPresent } from './model-source.js';
import { sglangDriver } from './sglang.js';
import { readVerdict } from './verdicts.js';
import { vllmDriver } from './vllm.js';

describe('loading steps', () => {
  it.each([
    [
      vllmDriver,
      'model-00002-of-00017.safetensors:  12%|█▏        | 560M/4.66G [00:09<01:10, 58.1MB/s]',
      'downloading',
    ],
    [vllmDriver, 'INFO 11-02 gpu_model_runner.py:2602] Starting to load model Qwen/Qwen3-32B...', 'loading'],
    [
      vllmDriver,
      'Loading safetensors checkpoint shards:  25% Completed | 1/4 [00:01<00:03,  1.1s/it]',
      'loading',
    ],
    [vllmDriver, 'INFO backends.py:559] Dynamo bytecode transform time: 9.13 s', 'compiling'],
    [vllmDriver, 'Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  12%|█▏ | 8/67', 'compiling'],
    [sglangDriver, '[2026-10-02 10:00:00 TP0] Load weight begin. avail mem=78.58 GB', 'loading'],
    [sglangDriver, 'Capturing batches (bs=160 avail_mem=10.9 GB):   4%|▍', 'compiling'],
    [
      llamacppDriver,
      'load_tensors: loading model tensors, this can take a while... (mmap = true)',
      'loading',
    ],
    [llamacppDriver, 'common_download_file_single_online: downloading from https://…', 'downloading'],
    [vllmDriver, 'INFO: 127.0.0.1:4242 - "GET /health HTTP/1.1" 200 OK', undefined],
    [vllmDriver, 'Waiting for 1 local, 0 remote core engine proc(s) to start.', undefined],
  ])('%#', (driver, line, phase) => {
    expect(driver.readStep(line)?.phase).toBe(phase);
  });
});

describe('LoadProgress', () => {
  it('counts from the last sign of progress; repeating that one waits is none', () => {
    const progress = new LoadProgress((line) => vllmDriver.readStep(line), 0);
    progress.take(['Waiting for 1 core engine proc(s) to start.'], '', 1_000);
    for (let at = 2_000; at <= 60_000; at += 1_000)
      progress.take([`Waiting for ${at} core engine proc(s) to start.`], '', at);
    expect(progress.stillMs(60_000)).toBe(59_000);
    progress.take([], 'Loading safetensors checkpoint shards:  25% Completed | 1/4', 61_000);
    expect(progress.stillMs(62_000)).toBe(1_000);
    progress.take([], 'Loading safetensors checkpoint shards:  50% Completed | 2/4', 65_000);
    expect(progress.stillMs(65_000)).toBe(0);
    expect(progress.current).toMatchObject({ phase: 'loading' });
  });
});

describe('verdicts', () => {
  it.each<[string[], Parameters<typeof readVerdict>[0], string]>([
    [['torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB'], { code: 1 }, 'outOfMemory'],
    [
      ['ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`'],
      { code: 1 },
      'outOfMemory',
    ],
    [
      [
        'ValueError: Free memory on device (20.1/79.1 GiB) on startup is less than desired GPU memory utilization',
      ],
      { code: 1 },
      'outOfMemory',
    ],
    [
      [
        'ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9000.00 MiB on device 0: cudaMalloc failed: out of memory',
        'error loading model',
      ],
      { code: 1 },
      'outOfMemory',
    ],
    [['OSError: [Errno 98] Address already in use'], { code: 1 }, 'portTaken'],
    [["couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 8080"], { code: 1 }, 'portTaken'],
    [['api_server.py: error: unrecognized arguments: --foo'], { code: 2 }, 'badFlag'],
    [['error: invalid argument: --foo'], { code: 1 }, 'badFlag'],
    [['huggingface_hub.errors.GatedRepoError: 403 Client Error.'], { code: 1 }, 'gatedRepository'],
    [
      ['OSError: some/model is not a local folder and is not a valid model identifier listed on'],
      { code: 1 },
      'missingWeights',
    ],
    [
      ['gguf_init_from_file: invalid magic characters', "error loading model '/m/x.gguf'"],
      { code: 1 },
      'missingWeights',
    ],
    [
      ['safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge'],
      { code: 1 },
      'missingWeights',
    ],
    [
      ['[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12)'],
      { signal: 'SIGABRT' },
      'ncclTimeout',
    ],
    [['OSError: [Errno 28] No space left on device', 'error loading model'], { code: 1 }, 'diskFull'],
    [['CUDA error: uncorrectable NVLink error detected during the execution'], { code: 1 }, 'xid'],
    [['loading…'], { signal: 'SIGILL' }, 'illegalInstruction'],
    [
      ['ggml-rpc: Remote RPC server crashed or returned malformed response'],
      { signal: 'SIGABRT' },
      'peerRankExited',
    ],
    [['hello'], { code: 127 }, 'binaryMissing'],
    [['hello'], { signal: 'SIGKILL' }, 'signalled'],
    [['hello'], { code: 0 }, 'exitedCleanly'],
    [['hello'], { code: 3 }, 'crashed'],
    [[], {}, 'unknown'],
  ])('%#', (lines, exit, verdict) => {
    const end = readVerdict(exit, ['earlier', ...lines]);
    expect(end.verdict).toBe(verdict);
    expect(end.message).not.toBe('');
    expect(end.message.length).toBeLessThanOrEqual(300);
  });

  it('is not misled by words that engines print when all is well', () => {
    const lines = [
      'INFO cuda.py:217] Using Flash Attention backend; swap space is left on device',
      'non-default args: {"gpu_memory_utilization": 0.9, "max_model_len": 4096}',
      'INFO: Application startup complete.',
      'Using max model len 32768, available KV cache memory: 45.2 GiB',
      'INFO api_server.py] Route: /v1/chat/completions, Methods: POST',
    ];
    expect(readVerdict({ code: 1 }, lines).verdict).toBe('crashed');
  });
});

describe('work samples', () => {
  it('adds up the series of several ranks and takes the rest for unknown', () => {
    const text = [
      '# HELP vllm:num_requests_running x',
      'vllm:num_requests_running{engine="0",model_name="a b"} 2.0',
      'vllm:num_requests_running{engine="1",model_name="a b"} 1.0',
      'vllm:num_requests_waiting{engine="0"} 4 1760000000',
      'vllm:generation_tokens_total{engine="0"} 1e3',
      'vllm:prompt_tokens_total{engine="0"} NaN',
    ].join('\n');
    expect(readWork(text, VLLM_METRICS)).toEqual({ running: 3, waiting: 4, progress: 1000 });
    expect(readWork(text, SGLANG_METRICS)).toEqual({});
    expect(readWork('<html>', VLLM_METRICS)).toEqual({});
  });
});

/** A file in the safetensors format with one tensor of eight bytes. */
function safetensors(): Buffer {
  const header = Buffer.from(JSON.stringify({ t: { dtype: 'U8', shape: [8], data_offsets: [0, 8] } }));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(header.length));
  return Buffer.concat([length, header, Buffer.alloc(8)]);
}

async function expectCutOff(models: string): Promise<void> {
  const directory = join(models, 'org', 'cut');
  mkdirSync(directory);
  const weights = join(directory, 'model.safetensors');
  writeFileSync(weights, safetensors());
  expect(await lackOf(directory)).toBeUndefined();
  for (const end of [-1, -8, 20, 7]) {
    writeFileSync(weights, safetensors().subarray(0, end));
    expect(await lackOf(directory)).toBe('the end of model.safetensors');
  }
  writeFileSync(weights, 'x'.repeat(100));
  expect(await lackOf(weights)).toBe('the end of model.safetensors');
  rmSync(directory, { recursive: true });
}

describe('weights on disk', () => {
  let root: string | undefined;
  afterEach(() => {
    if (root !== undefined) rmSync(root, { recursive: true, force: true });
  });

  it('takes only whole snapshots of the cache, and finds models under the roots', async () => {
    root = mkdtempSync(join(tmpdir(), 'llmgw-weights-'));
    const hub = join(root, 'hub');
    const repository = (name: string, ...blobs: string[]): void => {
      mkdirSync(join(hub, name, 'snapshots', 'abc'), { recursive: true });
      writeFileSync(join(hub, name, 'snapshots', 'abc', 'config.json'), '{}');
      if (name !== 'models--org--begun')
        writeFileSync(join(hub, name, 'snapshots', 'abc', 'model.safetensors'), 'x');
      mkdirSync(join(hub, name, 'blobs'), { recursive: true });
      for (const blob of blobs) writeFileSync(join(hub, name, 'blobs', blob), '');
    };
    repository('models--Qwen--Qwen3-32B', 'aaa');
    repository('models--org--half', 'aaa', 'bbb.incomplete');
    // Cut off between two files: nothing is incomplete, and the weights were never begun.
    repository('models--org--begun', 'aaa');
    mkdirSync(join(hub, 'models--org--none'), { recursive: true });
    const models = join(root, 'models');
    mkdirSync(join(models, 'org', 'local'), { recursive: true });
    writeFileSync(join(models, 'org', 'local', 'config.json'), '{}');
    writeFileSync(join(models, 'org', 'local', 'model.safetensors'), 'x');
    writeFileSync(join(models, 'tiny.gguf'), 'x');
    writeFileSync(join(models, 'empty.gguf'), '');
    writeFileSync(join(models, 'split-00001-of-00002.gguf'), 'x');
    mkdirSync(join(models, 'org', 'sharded'));
    writeFileSync(join(models, 'org', 'sharded', 'config.json'), '{}');
    writeFileSync(join(models, 'org', 'sharded', 'a.safetensors'), 'x');
    writeFileSync(
      join(models, 'org', 'sharded', 'model.safetensors.index.json'),
      '{"weight_map":{"x":"a.safetensors","y":"b.safetensors"}}',
    );
    expect(await weightsPresent([models, '/not/there'], hub, 100)).toEqual(
      expect.arrayContaining(['Qwen/Qwen3-32B', 'org/local', 'tiny.gguf', join(models, 'tiny.gguf')]),
    );
    expect(await weightsPresent([models], hub, 100)).toHaveLength(5);
    expect(await lackOf(join(models, 'org', 'sharded'))).toBe('b.safetensors');
    expect(await lackOf(join(models, 'split-00001-of-00002.gguf'))).toBe('split-00002-of-00002.gguf');
    await expectCutOff(models);
    expect(await lackOf(join(models, 'tiny.gguf'))).toBeUndefined();
    expect(await inHubCache(hub, 'org/begun')).toBe(false);
    expect(await inHubCache(hub, 'org/half')).toBe(false);
    expect(await inHubCache(hub, 'org/none')).toBe(false);
    expect(await weightsPresent([models], hub, 2)).toHaveLength(2);
  });
});
