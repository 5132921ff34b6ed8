/** What no single value can get wrong: names that clash, references to nothing, addresses left open. */
import { flagProblem, flagProblemText } from '../domain/catalog/engine-flags.js';
import { ENGINE_KINDS } from '../domain/model-spec.js';
import { didYouMean } from '../shared/nearest.js';
import { isLoopbackHost, parseAddress } from './address.js';
import { checkStandIns } from './check-stand-ins.js';
import type { ModelConfig, ProfileConfig, ServerConfig } from './server-config.js';
import type { Findings } from './settings-reader.js';
import { problemAt } from './validate-settings.js';

/** The system's range of ports for outgoing connections, first and last. */
export type PortRange = readonly [number, number];

export const NOTHING_TO_SERVE =
  'nothing to serve: declare models with profiles, or give --endpoint for a router-only run';

type Report = (path: string, message: string) => void;

/** Adds problems and warnings to the findings. `ephemeral` is unknown on systems that do not say. */
export function checkServer(
  config: ServerConfig,
  findings: Findings,
  ephemeral: PortRange | undefined,
): void {
  const known = new Set(findings.problems.map(({ path }) => path));
  const problem: Report = (path, message) => {
    // What could not be read keeps its default; a finding about the default would mislead.
    if (!known.has(path)) findings.problems.push(problemAt(findings, path, message));
  };
  const warning: Report = (path, message) => findings.warnings.push(problemAt(findings, path, message));
  checkEndpointIds(config, problem);
  checkModelNames(config, problem);
  checkStandIns(config, problem);
  config.models.forEach((model, index) => checkModel(config, model, `models[${index}]`, problem, warning));
  checkRouter(config, problem);
  checkTimes(config, problem);
  checkListeners(config, problem, warning);
  checkPorts(config, warning, ephemeral);
}

export function checkServesSomething(config: ServerConfig, findings: Findings): void {
  // Beside another problem this would mislead: what was to be served may just not have been readable.
  if (findings.problems.length > 0 || config.models.length > 0 || config.endpoints.length > 0) return;
  findings.problems.push({ source: '', message: NOTHING_TO_SERVE });
}

function checkEndpointIds(config: ServerConfig, problem: Report): void {
  const seen = new Map<string, number>();
  config.endpoints.forEach(({ id }, index) => {
    const first = seen.get(id);
    if (first === undefined) seen.set(id, index);
    else if (id !== undefined)
      problem(`endpoints[${index}].id`, `"${id}" is already the id of endpoints[${first}]`);
  });
}

/** Every name and alias leads to exactly one model. */
function checkModelNames(config: ServerConfig, problem: Report): void {
  const owners = new Map<string, string>();
  const claim = (name: string, path: string): void => {
    const owner = owners.get(name);
    if (owner === undefined) owners.set(name, path);
    else if (name !== undefined) problem(path, `"${name}" is already used by ${owner}`);
  };
  config.models.forEach(({ name }, index) => claim(name, `models[${index}].name`));
  // Static endpoints may add to a model of the same name, but an alias of one model must not hide another.
  for (const [index, endpoint] of config.endpoints.entries()) {
    endpoint.models?.forEach((name, at) => {
      if (!owners.has(name)) owners.set(name, `endpoints[${index}].models[${at}]`);
    });
  }
  config.models.forEach(({ aliases }, index) =>
    // An alias listed twice is a finding of its own already.
    new Set(aliases).forEach((alias) => claim(alias, `models[${index}].aliases[${aliases.indexOf(alias)}]`)),
  );
}

function checkModel(
  config: ServerConfig,
  model: ModelConfig,
  path: string,
  problem: Report,
  warning: Report,
): void {
  const served = config.endpoints.some((endpoint) => endpoint.models?.includes(model.name));
  if (model.profiles.length === 0 && !served && model.name !== undefined) {
    problem(
      `${path}.profiles`,
      `expected at least one launch profile, or an endpoint that serves "${model.name}"`,
    );
  }
  if (model.routing !== undefined) checkRoutingName(config, model.routing, `${path}.routing`, problem);
  const seen = new Set<string>();
  model.profiles.forEach((profile, index) => {
    const at = `${path}.profiles[${index}]`;
    if (seen.has(profile.name)) problem(`${at}.name`, `"${profile.name}" is already the name of a profile`);
    else if (profile.name !== undefined) seen.add(profile.name);
    checkProfile(model, profile, at, problem, warning);
  });
}

function checkRoutingName(config: ServerConfig, name: string, path: string, problem: Report): void {
  const names = Object.keys(config.router.profiles);
  if (names.includes(name)) return;
  const hint = didYouMean(name, names) || `; known are ${names.join(', ')}`;
  problem(path, `no routing profile is named "${name}"${hint}`);
}

const NEED_SOURCE: ReadonlySet<string> = new Set(['vllm', 'sglang', 'llamacpp']);

/** Set by the agent per shard; a value from elsewhere would put an engine on somebody else's GPU. */
const RESERVED_VARIABLES = new Set([
  'CUDA_VISIBLE_DEVICES',
  'NVIDIA_VISIBLE_DEVICES',
  'HIP_VISIBLE_DEVICES',
  'ROCR_VISIBLE_DEVICES',
  'LD_PRELOAD',
  'LD_LIBRARY_PATH',
  'PATH',
]);

export const LOOKS_SECRET = /(TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|(^|_|-)KEY$|API_?KEY)/i;

function checkProfile(
  model: ModelConfig,
  profile: ProfileConfig,
  path: string,
  problem: Report,
  warning: Report,
): void {
  if (NEED_SOURCE.has(profile.engine) && model.source === undefined) {
    problem(
      `${path}.engine`,
      `${profile.engine} needs to know what to load: set source of model "${model.name}"`,
    );
  }
  if (profile.gpus === 0) {
    for (const key of ['gpuMemory', 'gpuType'] as const) {
      if (profile[key] !== undefined) warning(`${path}.${key}`, 'has no effect without gpus');
    }
  }
  for (const [name, value] of Object.entries(profile.env)) {
    const at = `${path}.env.${name}`;
    if (RESERVED_VARIABLES.has(name) || name.startsWith('LLMGW_')) problem(at, `${name} is set by the agent`);
    else if (typeof value === 'string' && LOOKS_SECRET.test(name)) {
      warning(at, 'looks like a secret; keep it in a file on the machine: { fromFile: PATH }');
    }
  }
  // An engine that could not be read is a finding of its own.
  const args = ENGINE_KINDS.includes(profile.engine) ? profile.args : [];
  args.forEach((arg, index) => {
    const at = `${path}.args[${index}]`;
    const found = flagProblem(profile.engine, arg);
    if (found?.kind === 'reserved') problem(at, flagProblemText(profile.engine, found));
    if (found?.kind === 'secret') {
      warning(at, 'a key in arguments is seen by everyone on the machine, so agents refuse it; use env');
    }
  });
}

function checkRouter(config: ServerConfig, problem: Report): void {
  checkRoutingName(config, config.router.defaultProfile, 'router.defaultProfile', problem);
  config.router.cors.origins.forEach((origin, index) => {
    const fits = origin === '*' || (URL.canParse(origin) && new URL(origin).origin === origin);
    if (!fits)
      problem(
        `router.cors.origins[${index}]`,
        `expected an origin such as https://app.example, got "${origin}"`,
      );
  });
}

function checkTimes({ control }: ServerConfig, problem: Report): void {
  if (control.baseBackoff > control.maxBackoff) {
    problem('control.baseBackoff', 'must not be longer than control.maxBackoff');
  }
  if (control.unreachableAfter >= control.lostAfter) {
    problem('control.unreachableAfter', 'must be shorter than control.lostAfter');
  }
}

const LISTENERS = ['listen', 'adminListen', 'agentListen'] as const;

function checkListeners(config: ServerConfig, problem: Report, warning: Report): void {
  const taken = new Map<string, string>();
  for (const key of LISTENERS) {
    const address = parseAddress(config[key]);
    if (!address.ok || address.value.port === 0) continue;
    const other = taken.get(config[key]);
    if (other === undefined) taken.set(config[key], key);
    else problem(key, `${config[key]} is already the address of ${other}`);
  }
  if (isOpen(config.listen) && !config.auth.apiKeys.required) {
    warning(
      'listen',
      `${config.listen} is reachable from other machines and needs no API key: set auth.apiKeys.required, or keep it to a network you trust`,
    );
  }
  for (const { path, message } of exposureProblems(config)) problem(path, message);
}

/** Admin and agent listeners that others could reach without proving who they are; each message names both ways out. */
export function exposureProblems(
  config: ServerConfig,
): readonly { readonly path: string; readonly message: string }[] {
  if (config.insecure) return [];
  const { admin, agents } = config.auth;
  const found: { path: string; message: string }[] = [];
  if (isOpen(config.adminListen) && (admin.tokens.length === 0 || admin.tls === undefined)) {
    const ways = 'auth.admin.tokens and auth.admin.tls';
    found.push({ path: 'adminListen', message: refusal(config.adminListen, ways) });
  }
  const tokensNeeded = agents.joinTokensFile !== undefined || agents.joinTokensRequired;
  const agentsProven = tokensNeeded || agents.tls?.caFile !== undefined;
  if (isOpen(config.agentListen) && (agents.tls === undefined || !agentsProven)) {
    const ways = 'auth.agents.tls with caFile, or auth.agents.tls and auth.agents.joinTokensRequired';
    found.push({ path: 'agentListen', message: refusal(config.agentListen, ways) });
  }
  return found;
}

const refusal = (address: string, ways: string): string =>
  `${address} is reachable from other machines without authentication and TLS: set ${ways}, or write insecure: true`;

function isOpen(text: string): boolean {
  const address = parseAddress(text);
  return address.ok && !isLoopbackHost(address.value.host);
}

function checkPorts(config: ServerConfig, warning: Report, ephemeral: PortRange | undefined): void {
  const [first, last] = config.control.portRange;
  if (ephemeral !== undefined && first <= ephemeral[1] && last >= ephemeral[0]) {
    warning(
      'control.portRange',
      `overlaps the system's ports for outgoing connections (${ephemeral[0]}-${ephemeral[1]}): engines may find theirs taken`,
    );
  }
  for (const key of LISTENERS) {
    const address = parseAddress(config[key]);
    if (!address.ok) continue;
    const { port } = address.value;
    if (port >= first && port <= last) warning(key, `port ${port} lies in control.portRange`);
  }
}
