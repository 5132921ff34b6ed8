/** Models that answer in another one's place: fallbacks and canaries. */
import { didYouMean } from '../shared/nearest.js';
import type { CanaryConfig, ModelConfig, ServerConfig } from './server-config.js';

type Report = (path: string, message: string) => void;

export function checkStandIns(config: ServerConfig, problem: Report): void {
  const names = [
    ...config.models.flatMap(({ name, aliases }) => [name, ...aliases]),
    ...config.endpoints.flatMap(({ models }) => models ?? []),
  ].filter((name) => name !== undefined);
  const owners = new Map(
    config.models.flatMap((model) => [model.name, ...model.aliases].map((name) => [name, model] as const)),
  );
  config.models.forEach((model, index) => {
    const path = `models[${index}]`;
    model.fallback.forEach((name, at) => {
      const where = `${path}.fallback[${at}]`;
      if (owners.get(name) === model) problem(where, 'a model cannot fall back to itself');
      else if (!names.includes(name)) problem(where, `no model is named "${name}"${didYouMean(name, names)}`);
      else checkLoop(config, owners, model, name, where, problem);
    });
    checkCanaries(config, model, path, names, problem);
  });
}

/** Fallbacks are followed from model to model: one that leads back to its start is none. Told once, at the loop's first model. */
function checkLoop(
  config: ServerConfig,
  owners: ReadonlyMap<string, ModelConfig>,
  start: ModelConfig,
  name: string,
  path: string,
  problem: Report,
): void {
  const way = wayBack(owners, start, name, new Set());
  if (way === undefined) return;
  const first = config.models.find(({ name: one }) => way.includes(one));
  if (first === start) problem(path, `leads back to where it began: ${[start.name, ...way].join(' → ')}`);
}

/** The models from `name` on until `start` is met again; undefined where it is not. */
function wayBack(
  owners: ReadonlyMap<string, ModelConfig>,
  start: ModelConfig,
  name: string,
  seen: Set<ModelConfig>,
): string[] | undefined {
  const model = owners.get(name);
  if (model === undefined || seen.has(model)) return undefined;
  if (model === start) return [start.name];
  seen.add(model);
  for (const next of model.fallback) {
    const rest = wayBack(owners, start, next, seen);
    if (rest !== undefined) return [model.name, ...rest];
  }
  return undefined;
}

function checkCanaries(
  config: ServerConfig,
  model: ModelConfig,
  path: string,
  names: readonly string[],
  problem: Report,
): void {
  const seen = new Set<string>();
  const pools = poolsOf(config, model);
  model.canary.forEach((canary, at) => {
    const where = `${path}.canary[${at}]`;
    const side = sideOf(canary);
    if (side === undefined) return problem(where, 'expected either a model or a pool');
    if (seen.has(side)) problem(where, `there is already a canary for ${side}`);
    seen.add(side);
    if (canary.pool !== undefined && !pools.includes(canary.pool)) {
      const hint = didYouMean(canary.pool, pools) || `; known are ${pools.join(', ') || 'none'}`;
      problem(
        `${where}.pool`,
        `no launch profile or pool of "${model.name}" is named "${canary.pool}"${hint}`,
      );
    }
    if (canary.model === undefined) return;
    if (canary.model === model.name || model.aliases.includes(canary.model)) {
      problem(`${where}.model`, 'a model cannot be its own canary');
    } else if (!names.includes(canary.model)) {
      problem(`${where}.model`, `no model is named "${canary.model}"${didYouMean(canary.model, names)}`);
    }
  });
  // A weight that could not be read is a finding of its own.
  const sum = model.canary.reduce((total, { weight }) => total + (weight ?? 0), 0);
  if (sum > 1 + 1e-9) {
    problem(`${path}.canary`, `the weights are ${Math.round(sum * 100)} % together, more than there is`);
  }
}

function sideOf({ model, pool }: CanaryConfig): string | undefined {
  if ((model === undefined) === (pool === undefined)) return undefined;
  return model === undefined ? `pool ${pool}` : `model ${model}`;
}

function poolsOf(config: ServerConfig, model: ModelConfig): string[] {
  const fixed = config.endpoints.filter((endpoint) => endpoint.models?.includes(model.name));
  return [
    ...new Set([...model.profiles.map((profile) => profile.name), ...fixed.map((endpoint) => endpoint.pool)]),
  ].filter((name) => name !== undefined);
}
