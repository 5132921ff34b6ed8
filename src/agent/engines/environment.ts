/**
 * The environment of an engine is built from allow-lists, never inherited: what the agent was started with (tokens of
 * an operator's shell, systemd's socket names) is none of an engine's business, and what the server sends may not load code.
 */
import { readFileSync } from 'node:fs';
import type { GpuVendor } from '../../domain/cluster.js';
import type { EnvValue } from '../../domain/model-spec.js';
import type { Refusal } from './driver.js';

/** Taken over from the agent's own environment when present. */
const INHERITED = new Set([
  'PATH',
  'HOME',
  'USER',
  'LOGNAME',
  'LANG',
  'LANGUAGE',
  'TZ',
  'TMPDIR',
  'LD_LIBRARY_PATH',
  'CUDA_HOME',
  'CUDA_PATH',
  'ROCM_PATH',
  'VIRTUAL_ENV',
  'HF_HOME',
  'HF_HUB_CACHE',
  'HF_ENDPOINT',
  'HF_HUB_OFFLINE',
  'VLLM_CACHE_ROOT',
  'XDG_CACHE_HOME',
  'XDG_DATA_HOME',
  'SSL_CERT_FILE',
  'SSL_CERT_DIR',
  'REQUESTS_CA_BUNDLE',
  'HTTP_PROXY',
  'HTTPS_PROXY',
  'NO_PROXY',
  'http_proxy',
  'https_proxy',
  'no_proxy',
]);

/** Never from the server, whatever the engine: they load code, or are set by the agent itself. */
const FORBIDDEN =
  /^(?:LD_.*|DYLD_.*|PATH|HOME|SHELL|IFS|ENV|BASH_ENV|PROMPT_COMMAND|PYTHON.*|PERL.*|RUBY.*|NODE_.*|JAVA_TOOL_OPTIONS|GCONV_PATH|LLMGW_.*|(?:CUDA|HIP|ROCR|GPU|NVIDIA|ZE)_VISIBLE_DEVICES|GPU_DEVICE_ORDINAL|CUDA_DEVICE_ORDER|CUDA_INJECTION.*|NVBLAS_.*|NCCL_.*PLUGIN.*)$/;

const NAME = /^[A-Za-z_][A-Za-z0-9_]*$/;

/** True when a profile may set the variable for an engine that takes these names. */
export function profileMaySet(name: string, takes: (name: string) => boolean): boolean {
  return NAME.test(name) && !FORBIDDEN.test(name) && takes(name);
}

/** Names by pattern, for drivers: `HF_*` and the like. */
export function namesLike(...patterns: readonly RegExp[]): (name: string) => boolean {
  return (name) => patterns.some((pattern) => pattern.test(name));
}

/** Libraries below every Python engine. */
export const PYTHON_ENGINE_NAMES: readonly RegExp[] = [
  /^(?:HF|HUGGING_FACE|HUGGINGFACE)_(?!HUB_TRUST).*/,
  /^(?:NCCL|GLOO|TORCH|TORCHINDUCTOR|PYTORCH|TRITON|FLASHINFER|CUDA|CUBLAS|CUDNN|HIP|HSA|RCCL|MIOPEN|UCX|TP)_.*/,
  /^(?:OMP|MKL|OPENBLAS|NUMEXPR|KMP)_.*/,
  /^(?:TOKENIZERS|TRANSFORMERS|SAFETENSORS|ACCELERATE)_.*/,
  /^TZ$/,
];

export function inheritedEnvironment(own: NodeJS.ProcessEnv): Record<string, string> {
  const kept: Record<string, string> = {};
  for (const [name, value] of Object.entries(own)) {
    if (value !== undefined && (INHERITED.has(name) || name.startsWith('LC_'))) kept[name] = value;
  }
  return kept;
}

export interface ProfileEnvironment {
  readonly variables: Readonly<Record<string, string>>;
  /** Values that must never be shown. */
  readonly secrets: readonly string[];
}

/** Reads a profile's variables; values from files are secrets, and so is whatever is named like one. */
export function profileEnvironment(
  env: Readonly<Record<string, EnvValue>>,
  takes: (name: string) => boolean,
  secretName: RegExp,
): ProfileEnvironment | Refusal {
  const variables: Record<string, string> = {};
  const secrets: string[] = [];
  for (const [name, value] of Object.entries(env)) {
    if (!profileMaySet(name, takes)) {
      return { verdict: 'notAllowed', message: `environment variable ${name} may not be set by a profile` };
    }
    const read = 'value' in value ? value.value : readSecret(name, value.fromFile);
    if (typeof read !== 'string') return read;
    if (read.includes('\0'))
      return { verdict: 'notAllowed', message: `environment variable ${name} holds a NUL` };
    variables[name] = read;
    if ('fromFile' in value || secretName.test(name)) secrets.push(read);
  }
  return { variables, secrets };
}

function readSecret(name: string, path: string): string | Refusal {
  try {
    // Editors end files with a newline; in a header or token it would be an error nobody sees.
    return readFileSync(path, 'utf8').replace(/\r?\n$/, '');
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    return {
      verdict: 'notAllowed',
      message: `environment variable ${name} cannot be read from its file: ${why}`,
    };
  }
}

/**
 * Devices are named by UUID: an index means another card as soon as one falls off the bus. `indices`, fresh ones, are for
 * engines that crash on a UUID (`int('GPU-…')`); they are only right in PCI order, which is asked for as well.
 */
export function deviceEnvironment(
  vendor: GpuVendor | undefined,
  uuids: readonly string[],
  indices?: readonly number[],
): Record<string, string> {
  const list = uuids.join(',');
  switch (vendor) {
    case 'nvidia':
      return { CUDA_VISIBLE_DEVICES: indices?.join(',') ?? list, CUDA_DEVICE_ORDER: 'PCI_BUS_ID' };
    case 'amd':
      return { ROCR_VISIBLE_DEVICES: list };
    case 'static':
      return uuids.length > 0 ? { LLMGW_GPUS: list } : {};
    case 'unknown':
    case undefined:
      // A shard without GPUs must not help itself to one.
      return { CUDA_VISIBLE_DEVICES: '', ROCR_VISIBLE_DEVICES: '', HIP_VISIBLE_DEVICES: '' };
  }
}

/** Collective libraries pick any interface that answers; on machines with several that is often the wrong one. */
export function interconnectEnvironment(interfaceName: string | undefined): Record<string, string> {
  if (interfaceName === undefined) return {};
  // `=` in front asks NCCL for exactly this interface instead of all that begin so.
  return { NCCL_SOCKET_IFNAME: `=${interfaceName}`, GLOO_SOCKET_IFNAME: interfaceName };
}
