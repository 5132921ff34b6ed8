import { describe, expect, it } from 'vitest';
import type { Verdict } from '../../domain/cluster.js';
import { LineSplitter } from '../log-text.js';
import { readVerdict } from './verdicts.js';

/** Last words of engines, by cause, as the engines print them. */
const LINES: Readonly<Partial<Record<Verdict, readonly string[]>>> = {
  outOfMemory: [
    'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.16 GiB. GPU 0 has a total capacity of 79.11 GiB of which 13.56 MiB is free.',
    'torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB.',
    'RuntimeError: CUDA error: out of memory',
    'ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.',
    'ValueError: Free memory on device cuda:0 (20.1/79.1 GiB) on startup is less than desired GPU memory utilization (0.9, 71.2 GiB).',
    "ValueError: To serve at least one request with the models's max seq len (131072), (16.00 GiB KV cache is needed, which is larger than the available KV cache memory (7.31 GiB).",
    'RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: args.mem_fraction_static=0.5',
    'ggml_backend_cuda_buffer_type_alloc_buffer: allocating 17524.42 MiB on device 0: cudaMalloc failed: out of memory',
    'ggml_vulkan: Device memory allocation of size 1073741824 failed: vk::Device::allocateMemory: ErrorOutOfDeviceMemory',
    'llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache',
    "terminate called after throwing an instance of 'std::bad_alloc'",
  ],
  portTaken: [
    'OSError: [Errno 98] Address already in use',
    "ERROR:    [Errno 98] error while attempting to bind on address ('10.0.0.1', 20001): address already in use",
    "start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 28111",
    'torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 20100, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use',
    "zmq.error.ZMQError: Address already in use (addr='tcp://127.0.0.1:20100')",
  ],
  badFlag: [
    'vllm: error: unrecognized arguments: --no-such-flag',
    "vllm serve: error: argument --max-model-len: invalid human_readable_int value: 'abc'",
    'launch_server.py: error: argument --tp-size/--tp: expected one argument',
    "launch_server.py: error: argument --schedule-policy: invalid choice: 'x' (choose from 'lpm', 'random')",
    'error: invalid argument: --no-such-flag',
    'error while handling argument "--ctx-size": stoi',
    'api_server.py: error: the following arguments are required: --model',
  ],
  missingWeights: [
    'huggingface_hub.errors.RepositoryNotFoundError: 404 Client Error. (Request ID: Root=1-6)',
    "OSError: no-such/repository is not a local folder and is not a valid model identifier listed on 'https://huggingface.co/models'",
    'huggingface_hub.errors.LocalEntryNotFoundError: Cannot find an appropriate cached snapshot folder for the specified revision on the local disk and outgoing traffic has been disabled.',
    'RuntimeError: Cannot find any model weights with `/models/empty`',
    'safetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata, file not fully covered',
    "gguf_init_from_file: failed to open GGUF file '/models/none.gguf': 'No such file or directory'",
    "llama_model_load: error loading model: tensor 'blk.9.ffn_up.weight' data is not within the file bounds, model is corrupted or incomplete",
    "srv    load_model: failed to load model, '/models/none.gguf'",
  ],
  gatedRepository: [
    'huggingface_hub.errors.GatedRepoError: 401 Client Error. (Request ID: Root=1-6)',
    'OSError: You are trying to access a gated repo.',
    'Access to model meta-llama/Llama-3.1-8B is restricted. You must have access to it and be authenticated to access it. Please log in.',
    'requests.exceptions.HTTPError: 403 Client Error: Forbidden for url: https://huggingface.co/org/m/resolve/main/config.json',
  ],
  ncclTimeout: [
    '[rank3]:[E1130 10:00:00.000000000 ProcessGroupNCCL.cpp:632] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1214, OpType=ALLREDUCE, Timeout(ms)=600000)',
    'torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined.',
    'torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3690, remote process exited or there was a network error, ncclRemoteError: A call failed possibly due to a network error',
    'RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details), ncclSystemError',
  ],
  xid: [
    'torch.AcceleratorError: CUDA error: unspecified launch failure',
    'RuntimeError: CUDA error: uncorrectable ECC error encountered',
    'NVRM: Xid (PCI:0000:83:00): 79, pid=1234, name=python3, GPU has fallen off the bus.',
    'Unable to determine the device handle for GPU0000:83:00.0: Unknown Error',
  ],
  illegalInstruction: ['Fatal Python error: Illegal instruction', '*** SIGILL (signal 4) received'],
  diskFull: [
    "OSError: [Errno 28] No space left on device: '/root/.cache/huggingface/hub/tmp'",
    'UserWarning: Not enough free disk space to download the file. The expected file size is: 4656.50 MB.',
    'RuntimeError: Data processing error: CAS service error : IO Error: No space left on device (os error 28)',
    'OSError: [Errno 122] Disk quota exceeded',
  ],
  peerRankExited: ['ggml-rpc: Remote RPC server crashed or returned malformed response'],
};

const cases = Object.entries(LINES).flatMap(([verdict, lines]) =>
  lines.map((line) => [verdict, line] as const),
);
const AFTER = [
  'Traceback (most recent call last):',
  'RuntimeError: Engine core initialization failed. See root cause above.',
];

/** Lines as the agent gets them: bytes, in reads of any size, at the end of a run. */
function read(line: string, chunkBytes: number): string {
  const bytes = Buffer.from(`INFO: started\n${line}\n${AFTER.join('\n')}\n`);
  const splitter = new LineSplitter();
  const lines: string[] = [];
  for (let at = 0; at < bytes.length; at += chunkBytes)
    lines.push(...splitter.push(bytes.subarray(at, at + chunkBytes)));
  return readVerdict({ code: 1 }, lines).verdict;
}

describe('the verdict of', () => {
  // It parked the profile on the node for good.
  it('an outage of the network is one that passes', () => {
    for (const line of [
      'huggingface_hub.errors.LocalEntryNotFoundError: An error happened while trying to locate the files on the Hub and we cannot find the appropriate snapshot folder for the specified revision on the local disk.',
      "OSError: We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them in the cached files.",
    ])
      expect(read(line, 4_096)).toBe('crashed');
  });

  it.each(cases)('%s: %s', (verdict, line) => {
    expect(read(line, 4_096)).toBe(verdict);
    // Split anywhere, also within an escape.
    expect(read(line, 7)).toBe(verdict);
    expect(read(line.toUpperCase(), 4_096)).toBe(verdict);
    // What loggers, process managers and terminals put around it.
    for (const around of [
      `\x1b[31m${line}\x1b[0m`,
      `\x1b[1;36m(EngineCore pid=4242)\x1b[0;0m ERROR 11-30 17:00:11 [core.py:946] ${line}`,
      `[2026-11-30 17:00:11 TP3] Scheduler hit an exception: ${line}`,
      `0.01.234.567 E ${line}`,
      `2026-11-30T17:00:11Z ERROR {"message":"${line}"}`,
      `(Worker_TP1 pid=7) [rank1]: ${line}\r`,
    ])
      expect(read(around, 11), around).toBe(verdict);
  });
});
