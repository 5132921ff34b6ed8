/**
 * Reads a configuration: defaults, then the file, then the environment, then flags; later wins.
 * Every problem is found in one go and thrown as one {@link ConfigError}; the origin of every value is kept.
 */
import { accessSync, constants, readFileSync } from 'node:fs';
import { isMap, LineCounter, parseDocument, type Document } from 'yaml';
import { systemClock } from '../shared/clock.js';
import { ConfigError, errorChain } from '../shared/errors.js';
import type { ConfigProblem } from '../shared/errors.js';
import { readTls, tlsProblem, type TlsFiles, type TlsProblem } from '../shared/tls-files.js';
import { checkAgent } from './check-agent.js';
import { AgentConfig } from './agent-config.js';
import { checkServer, checkServesSomething, type PortRange } from './check-server.js';
import { endpointFlagSource, parseEndpointFlag } from './endpoint-flag.js';
import { applyEnvironment, applyFlags, type ScalarFlag } from './overlay.js';
import { ServerConfig } from './server-config.js';
import { settingsOf, type SettingsClass } from './setting.js';
import { SettingsReader, joinPath, type Findings, type Origin } from './settings-reader.js';
import { problemAt, validateSettings } from './validate-settings.js';

export interface ConfigSources<T> {
  /** Path of the YAML file. */
  readonly file?: string;
  /** Read in place of the file's content; problems still name `file`. */
  readonly text?: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly flags?: readonly ScalarFlag[];
  /** Changes the configuration after file, environment and flags, before anything is checked. */
  readonly amend?: (config: T, origins: ReadonlyMap<string, Origin>) => void;
}

export interface ServerSources extends ConfigSources<ServerConfig> {
  /** `id=URL=model[,model]`, as given; one with the id of an endpoint of the file replaces it. */
  readonly endpoints?: readonly string[];
  /** Takes a configuration with nothing to serve: good enough to look at, not to run. */
  readonly mayServeNothing?: boolean;
}

export interface AgentSources extends ConfigSources<AgentConfig> {
  /** `KEY=VALUE`, as given; added to the labels of the file. */
  readonly labels?: readonly string[];
}

/** A valid configuration, deeply frozen. */
export interface LoadedConfig<T> {
  readonly config: T;
  readonly warnings: readonly ConfigProblem[];
  /** Origin by full path; a path that is missing holds its default. */
  readonly origins: ReadonlyMap<string, Origin>;
}

/** Throws {@link ConfigError} with every problem. */
export function loadServerConfig(sources: ServerSources): LoadedConfig<ServerConfig> {
  return load(sources, ServerConfig, (config, findings) => {
    addEndpoints(config, sources.endpoints ?? [], findings);
    sources.amend?.(config, findings.origins);
    validateSettings(config, findings);
    checkServer(config, findings, ephemeralPorts());
    if (sources.mayServeNothing !== true) checkServesSomething(config, findings);
    checkFiles(serverFiles(config), findings);
    checkTls('auth.admin.tls', config.auth.admin.tls, findings, 'problems');
    checkTls('auth.agents.tls', config.auth.agents.tls, findings, 'problems');
  });
}

/** Throws {@link ConfigError} with every problem. */
export function loadAgentConfig(sources: AgentSources): LoadedConfig<AgentConfig> {
  return load(sources, AgentConfig, (config, findings) => {
    addLabels(config, sources.labels ?? [], findings);
    sources.amend?.(config, findings.origins);
    validateSettings(config, findings);
    checkAgent(config, findings);
    checkFiles(agentFiles(config), findings);
    // The agent reads them anew at each dial, and its engines serve without a link.
    checkTls('tls', config.tls, findings, 'warnings');
  });
}

function load<T extends object>(
  sources: ConfigSources<T>,
  type: new () => T,
  finish: (config: T, findings: Findings) => void,
): LoadedConfig<T> {
  const findings: Findings = { problems: [], warnings: [], origins: new Map() };
  const config = new type();
  if (sources.file !== undefined) {
    const text = sources.text ?? readText(sources.file, findings);
    if (text !== undefined) readTextInto(config, type, sources.file, text, findings);
  }
  applyEnvironment(config, type, sources.env, findings);
  applyFlags(config, type, sources.flags ?? [], findings);
  finish(config, findings);
  if (findings.problems.length > 0) throw new ConfigError(inOrder(findings.problems));
  return { config: freeze(config), warnings: findings.warnings, origins: findings.origins };
}

/** Far beyond any real configuration; a wrong path to a log or a model file must not be read whole. */
export const MAX_FILE_BYTES = 4 * 1024 * 1024;

function readTextInto(
  target: object,
  type: SettingsClass,
  file: string,
  text: string,
  findings: Findings,
): void {
  const lines = new LineCounter();
  const document = parsed(text, lines);
  if (document === undefined) {
    const message = 'not valid YAML: lists and maps are nested too deeply to be read';
    findings.problems.push({ source: file, line: 1, column: 1, message });
    return;
  }
  for (const fault of [...document.errors, ...document.warnings]) {
    const { line, col } = lines.linePos(fault.pos[0]);
    findings.problems.push({ source: file, line, column: col, message: `not valid YAML: ${fault.message}` });
  }
  // What stands behind a syntax error is guesswork: findings about it would send people the wrong way.
  if (document.errors.length > 0) return;
  const mistaken = mistakenFile(document, type);
  if (mistaken !== undefined) findings.problems.push({ source: file, line: 1, column: 1, message: mistaken });
  new SettingsReader({ name: file, document, lines }, findings, type).readInto(target);
}

/** Undefined for a text whose nesting the parser, which calls itself for each level, has no stack for. */
function parsed(text: string, lineCounter: LineCounter): Document.Parsed | undefined {
  try {
    return parseDocument(text, { lineCounter, uniqueKeys: false, prettyErrors: false });
  } catch (error) {
    if (error instanceof RangeError) return undefined;
    throw error;
  }
}

/** Says that a file is the other program's: it has keys of its own of that one, and none of this one. */
function mistakenFile(document: Document, type: SettingsClass): string | undefined {
  const keys = isMap(document.contents) ? document.contents.items.map(({ key }) => String(key)) : [];
  const only = (one: SettingsClass, other: SettingsClass): boolean =>
    keys.some((key) => settingsOf(one).has(key) && !settingsOf(other).has(key));
  const agent = only(AgentConfig, ServerConfig);
  const server = only(ServerConfig, AgentConfig);
  if (type === ServerConfig && agent && !server)
    return "this looks like an agent's file: `config check --agent` checks it, `llmgw agent` runs it";
  if (type === AgentConfig && server && !agent)
    return "this looks like a server's file: `config check` without --agent checks it, `llmgw server` runs it";
  return undefined;
}

function readText(file: string, findings: Findings): string | undefined {
  try {
    const bytes = readFileSync(file);
    if (bytes.length <= MAX_FILE_BYTES) return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
    findings.problems.push({ source: file, message: `is larger than ${MAX_FILE_BYTES} bytes` });
  } catch (error) {
    findings.problems.push({ source: file, message: fileProblem(error) });
  }
  return undefined;
}

function fileProblem(error: unknown): string {
  if (error instanceof TypeError) return 'is not UTF-8 text';
  const code = (error as NodeJS.ErrnoException).code ?? '';
  return FILE_PROBLEMS[code] ?? `cannot be read: ${(error as Error).message}`;
}

const FILE_PROBLEMS: Readonly<Record<string, string>> = {
  ENOENT: 'no such file',
  EISDIR: 'is a directory, expected a file',
  EACCES: 'may not be read by this user',
};

function addEndpoints(config: ServerConfig, specs: readonly string[], findings: Findings): void {
  const given = new Set<string>();
  for (const spec of specs) {
    const source = endpointFlagSource(spec);
    const parsed = parseEndpointFlag(spec);
    if (!parsed.ok) {
      findings.problems.push({ source, message: parsed.problem });
      continue;
    }
    // A flag wins over the file, but two flags with one id are a mistake for the clash check to report.
    const { id } = parsed.value;
    const at = given.has(id) ? -1 : config.endpoints.findIndex((endpoint) => endpoint.id === id);
    const index = at < 0 ? config.endpoints.length : at;
    given.add(id);
    config.endpoints[index] = parsed.value;
    forget(findings, `endpoints[${index}]`);
    findings.origins.set(`endpoints[${index}]`, { kind: 'flag', source });
  }
}

function addLabels(config: AgentConfig, labels: readonly string[], findings: Findings): void {
  for (const label of labels) {
    const match = /^([A-Za-z0-9][A-Za-z0-9._/-]*)=(.*)$/.exec(label);
    const source = `--label "${label}"`;
    if (match === null) {
      findings.problems.push({ source, message: 'expected KEY=VALUE' });
      continue;
    }
    config.labels[match[1]!] = match[2]!;
    findings.origins.set(joinPath('labels', match[1]!), { kind: 'flag', source });
  }
}

/** Drops origins at and below the path: they belonged to a value that is gone. */
function forget(findings: Findings, path: string): void {
  for (const key of findings.origins.keys()) {
    if (key === path || key.startsWith(`${path}.`) || key.startsWith(`${path}[`))
      findings.origins.delete(key);
  }
}

type NamedFile = readonly [path: string, file: string | undefined];

function serverFiles({ endpoints, auth }: ServerConfig): NamedFile[] {
  return [
    ...endpoints.map((endpoint, index): NamedFile => [`endpoints[${index}].apiKeyFile`, endpoint.apiKeyFile]),
    ['auth.agents.joinTokensFile', auth.agents.joinTokensFile],
    ...tlsFiles('auth.admin.tls', auth.admin.tls),
    ...tlsFiles('auth.agents.tls', auth.agents.tls),
  ];
}

function agentFiles(config: AgentConfig): NamedFile[] {
  return [['joinTokenFile', config.joinTokenFile], ...tlsFiles('tls', config.tls)];
}

function tlsFiles(
  path: string,
  tls: { readonly caFile?: string; readonly certFile?: string; readonly keyFile?: string } | undefined,
): NamedFile[] {
  return (['caFile', 'certFile', 'keyFile'] as const).map((key) => [`${path}.${key}`, tls?.[key]]);
}

/** A missing key file would otherwise show as refused requests long after the start. */
function checkFiles(files: readonly NamedFile[], findings: Findings): void {
  for (const [path, file] of files) {
    if (typeof file !== 'string') continue;
    try {
      accessSync(file, constants.R_OK);
    } catch (error) {
      findings.problems.push(problemAt(findings, path, `${file}: ${fileProblem(error)}`));
    }
  }
}

/** What a listener could not start with is found before the start; one that is out of its time still serves whom it may. */
function checkTls(
  path: string,
  files: TlsFiles | undefined,
  findings: Findings,
  broken: 'problems' | 'warnings',
): void {
  if (files === undefined || findings.problems.some((one) => one.path?.startsWith(path) === true)) return;
  let problem: TlsProblem | undefined;
  try {
    problem = tlsProblem(files, readTls(files), systemClock.wallMs());
  } catch (error) {
    problem = { kind: 'broken', message: errorChain(error).join(': ') };
  }
  if (problem === undefined) return;
  findings[problem.kind === 'broken' ? broken : 'warnings'].push(problemAt(findings, path, problem.message));
}

function ephemeralPorts(): PortRange | undefined {
  try {
    const [first, last] = readFileSync('/proc/sys/net/ipv4/ip_local_port_range', 'utf8').trim().split(/\s+/);
    return [Number(first), Number(last)];
  } catch {
    return undefined;
  }
}

/** File first, then variables and flags; within the file from top to bottom. */
function inOrder(problems: readonly ConfigProblem[]): ConfigProblem[] {
  const rank = (problem: ConfigProblem): number => (problem.line === undefined ? 1 : 0);
  return [...problems].sort(
    (a, b) => rank(a) - rank(b) || (a.line ?? 0) - (b.line ?? 0) || (a.column ?? 0) - (b.column ?? 0),
  );
}

/** Freezes a configuration and everything below it. */
export function freeze<T>(value: T): T {
  if (typeof value !== 'object' || value === null) return value;
  const slots = value as Record<string, unknown>;
  for (const key of Object.keys(slots)) {
    // A declared field without a value would be an own key holding undefined, which the types rule out.
    if (slots[key] === undefined) delete slots[key];
    else freeze(slots[key]);
  }
  return Object.freeze(value);
}
