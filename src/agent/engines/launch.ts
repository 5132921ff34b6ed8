/** From a start command to an argument vector and an environment, or to the reason why not. */
import { AgentEngineConfig } from '../../config/agent-config.js';
import { flagName, flagProblem, flagProblemText } from '../../domain/catalog/engine-flags.js';
import type { GpuVendor } from '../../domain/cluster.js';
import type { StartShardCommand } from '../../domain/plan.js';
import { findExecutable } from '../executables.js';
import { SECRET_NAME } from '../redact.js';
import {
  isRefusal,
  type EngineDriver,
  type LaunchContext,
  type ModelSource,
  type Refusal,
} from './driver.js';
import {
  deviceEnvironment,
  inheritedEnvironment,
  interconnectEnvironment,
  profileEnvironment,
} from './environment.js';
import { resolveSource } from './model-source.js';

export interface Launch {
  readonly file: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** Values to take out of everything the engine prints. */
  readonly secrets: readonly string[];
  readonly source: ModelSource;
}

export interface LaunchSettings {
  readonly modelRoots: readonly string[];
  readonly bindHost: string;
  readonly interfaceName?: string;
  readonly gpuVendor?: GpuVendor;
  readonly gpuMemoryTotalBytes?: number;
  readonly gpuIndices?: readonly number[];
  /** The agent's own environment. */
  readonly ownEnv: NodeJS.ProcessEnv;
}

/** Longest single argument; the kernel refuses 128 KiB with an error that names nothing. */
const ARG_MAX_CHARS = 32 * 1024;

export async function planLaunch(
  driver: EngineDriver,
  config: AgentEngineConfig | undefined,
  start: StartShardCommand,
  settings: LaunchSettings,
): Promise<Launch | Refusal> {
  const own = config ?? new AgentEngineConfig();
  const argsProblem = checkArgs(driver, own, start);
  if (argsProblem !== undefined) return argsProblem;
  const source =
    driver.needsSource || start.source !== undefined ? await sourceOf(driver, start, settings) : none;
  if (isRefusal(source)) return source;
  const name = own.binary ?? driver.defaultBinary;
  const binary = await findExecutable(name, settings.ownEnv['PATH']);
  if (binary === undefined) return binaryMissing(driver, name);
  const context: LaunchContext = {
    start,
    config: own,
    source,
    bindHost: settings.bindHost,
    ...(settings.interfaceName === undefined ? {} : { interfaceName: settings.interfaceName }),
    ...(settings.gpuVendor === undefined ? {} : { gpuVendor: settings.gpuVendor }),
    ...(settings.gpuMemoryTotalBytes === undefined
      ? {}
      : { gpuMemoryTotalBytes: settings.gpuMemoryTotalBytes }),
    ...(settings.gpuIndices === undefined ? {} : { gpuIndices: settings.gpuIndices }),
  };
  const args = driver.args(context);
  if (isRefusal(args)) return args;
  const env = environmentOf(driver, context, settings);
  if (isRefusal(env)) return env;
  const programs = driver.binariesFor?.(context, binary) ?? [binary];
  const file = await firstExecutable(programs, settings.ownEnv['PATH']);
  if (file === undefined) return binaryMissing(driver, programs.join(' or '));
  return { file, args, env: env.variables, secrets: env.secrets, source };
}

const none: ModelSource = { kind: 'none' };

async function sourceOf(
  driver: EngineDriver,
  start: StartShardCommand,
  settings: LaunchSettings,
): Promise<ModelSource | Refusal> {
  if (start.source === undefined) {
    return { verdict: 'missingWeights', message: `engine ${driver.kind} needs the model's source` };
  }
  return resolveSource(start.source, settings.modelRoots);
}

function environmentOf(driver: EngineDriver, context: LaunchContext, settings: LaunchSettings) {
  const profile = profileEnvironment(context.start.profile.env, driver.takesEnv, SECRET_NAME);
  if (isRefusal(profile)) return profile;
  const { gpuUuids, shards } = context.start;
  const variables = {
    ...inheritedEnvironment(settings.ownEnv),
    // Output goes to a file, where Python would hold it back until a block is full: progress would come in jumps.
    PYTHONUNBUFFERED: '1',
    ...context.config.env,
    ...profile.variables,
    ...(shards > 1 ? interconnectEnvironment(settings.interfaceName) : {}),
    ...deviceEnvironment(
      gpuUuids.length === 0 ? undefined : context.gpuVendor,
      gpuUuids,
      driver.devicesBy === 'index' ? context.gpuIndices : undefined,
    ),
    ...driver.env(context),
  };
  const local = Object.entries(context.config.env)
    .filter(([name]) => SECRET_NAME.test(name))
    .map(([, value]) => value);
  return { variables, secrets: [...profile.secrets, ...local] };
}

/** Everything in a profile's arguments that the rules or the agent's own file forbid. */
function checkArgs(
  driver: EngineDriver,
  config: AgentEngineConfig,
  start: StartShardCommand,
): Refusal | undefined {
  for (const name of [start.model, ...start.aliases]) {
    if (name.startsWith('-') || name.includes('\0')) {
      return { verdict: 'notAllowed', message: `model name "${name}" could be taken for a flag` };
    }
  }
  const { args } = start.profile;
  const first = args[0];
  if (!driver.freeArgs && first !== undefined && flagName(first) === undefined) {
    return { verdict: 'badFlag', message: `argument "${first}" belongs to no flag` };
  }
  for (const arg of args) {
    const problem = checkArg(driver, config, arg);
    if (problem !== undefined) return problem;
  }
  return undefined;
}

function checkArg(driver: EngineDriver, config: AgentEngineConfig, arg: string): Refusal | undefined {
  if (arg.includes('\0') || arg.length > ARG_MAX_CHARS) {
    return {
      verdict: 'badFlag',
      message: `an argument holds a NUL or is longer than ${ARG_MAX_CHARS} characters`,
    };
  }
  const flag = flagName(arg);
  if (flag === undefined) return undefined;
  const names = (list: readonly string[]): boolean => list.some((entry) => flagName(entry) === flag);
  const problem = flagProblem(driver.kind, arg);
  if (problem !== undefined && !(problem.kind === 'guarded' && names(config.allowArgs ?? []))) {
    return {
      verdict: problem.kind === 'guarded' ? 'notAllowed' : 'badFlag',
      message: flagProblemText(driver.kind, problem),
    };
  }
  if (names(config.denyArgs)) {
    return { verdict: 'notAllowed', message: `${flag} is in the agent's engines.${driver.kind}.denyArgs` };
  }
  if (config.allowArgs !== undefined && !names(config.allowArgs)) {
    return {
      verdict: 'notAllowed',
      message: `${flag} is not in the agent's engines.${driver.kind}.allowArgs`,
    };
  }
  return undefined;
}

async function firstExecutable(
  names: readonly string[],
  path: string | undefined,
): Promise<string | undefined> {
  for (const name of names) {
    const found = await findExecutable(name, path);
    if (found !== undefined) return found;
  }
  return undefined;
}

function binaryMissing(driver: EngineDriver, name: string | undefined): Refusal {
  return {
    verdict: 'binaryMissing',
    message:
      name === undefined
        ? `the agent's file names no binary for engine ${driver.kind}`
        : `${name} is not an executable file${name.includes('/') ? '' : ' in PATH'}`,
  };
}
