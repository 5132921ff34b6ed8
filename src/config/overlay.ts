/** Environment variables and flags, read over what the file says. */
import type { ConfigProblem } from '../shared/errors.js';
import { nearest } from '../shared/nearest.js';
import type { ScalarKind } from './scalar-kinds.js';
import { settingsOf, type SettingsClass } from './setting.js';
import { joinPath, type Findings, type Origin } from './settings-reader.js';

/** A flag that sets one scalar. */
export interface ScalarFlag {
  /** As typed, e.g. `--admin-listen`. */
  readonly flag: string;
  /** Full path of the setting, e.g. `adminListen`. */
  readonly path: string;
  readonly text: string;
}

/** A scalar that the environment can set: everything outside lists and maps. */
export interface ScalarSetting {
  readonly path: string;
  /** Keys from the root. */
  readonly keys: readonly string[];
  readonly kind: ScalarKind;
  /** `LLMGW_ADMIN_LISTEN` for `adminListen`. */
  readonly variable: string;
}

export const ENV_PREFIX = 'LLMGW_';

/** Variables of the command line itself, which are no settings. */
export const OTHER_VARIABLES = [
  'LLMGW_CONFIG',
  'LLMGW_ADMIN_URL',
  'LLMGW_TOKEN_FILE',
  'LLMGW_DEBUG',
] as const;

/** `control.lostAfter` → `LLMGW_CONTROL_LOST_AFTER`. */
function variableName(keys: readonly string[]): string {
  const words = keys.map((key) => key.replace(/([a-z0-9])([A-Z])/g, '$1_$2').toUpperCase());
  return ENV_PREFIX + words.join('_');
}

export function scalarSettings(root: SettingsClass): ScalarSetting[] {
  const found: ScalarSetting[] = [];
  const visit = (type: SettingsClass, keys: readonly string[]): void => {
    for (const [key, { shape }] of settingsOf(type)) {
      const at = [...keys, key];
      if (shape.shape === 'object') visit(shape.type(), at);
      if (shape.shape !== 'scalar') continue;
      found.push({ path: at.reduce(joinPath, ''), keys: at, kind: shape.kind, variable: variableName(at) });
    }
  };
  visit(root, []);
  return found;
}

export function applyEnvironment(
  target: object,
  root: SettingsClass,
  env: Readonly<Record<string, string | undefined>>,
  findings: Findings,
): void {
  const settings = scalarSettings(root);
  for (const setting of settings) {
    const text = env[setting.variable];
    // Empty is unset: compose files and unit files pass empty variables along for "not given".
    if (text === undefined || text === '') continue;
    setScalar(target, root, setting, text, { kind: 'environment', source: setting.variable }, findings);
  }
  const known = settings.map((setting) => setting.variable);
  for (const warning of misspelt(env, known)) findings.warnings.push(warning);
}

/**
 * Platforms add variables of their own under any prefix (Kubernetes: `LLMGW_PORT=tcp://...`, `LLMGW_SERVICE_HOST`),
 * so an unknown one is no error. One that looks like a slip of ours is worth a warning.
 */
function misspelt(env: Readonly<Record<string, string | undefined>>, known: string[]): ConfigProblem[] {
  const ours = new Set<string>([...known, ...OTHER_VARIABLES]);
  return Object.keys(env)
    .filter((name) => name.startsWith(ENV_PREFIX) && !ours.has(name) && env[name] !== '')
    .filter((name) => !/_(PORT(_.*)?|SERVICE_(HOST|PORT.*))$/.test(name))
    .flatMap((name) => {
      const near = nearest(name, known);
      if (near === undefined) return [];
      return [{ source: name, message: `is not read; did you mean ${near}?` }];
    });
}

export function applyFlags(
  target: object,
  root: SettingsClass,
  flags: readonly ScalarFlag[],
  findings: Findings,
): void {
  const settings = new Map(scalarSettings(root).map((setting) => [setting.path, setting]));
  for (const { flag, path, text } of flags) {
    const setting = settings.get(path);
    if (setting === undefined) throw new Error(`flag ${flag} sets the unknown path ${path}`);
    setScalar(target, root, setting, text, { kind: 'flag', source: flag }, findings);
  }
}

function setScalar(
  target: object,
  root: SettingsClass,
  setting: ScalarSetting,
  text: string,
  origin: Origin,
  findings: Findings,
): void {
  const parsed = setting.kind.read({ value: text, raw: text, typed: false, quoted: false });
  findings.origins.set(setting.path, origin);
  if (!parsed.ok) {
    findings.problems.push({ source: origin.source, path: setting.path, message: parsed.problem });
    return;
  }
  const holder = holderOf(target, root, setting.keys.slice(0, -1));
  holder[setting.keys.at(-1)!] = parsed.value;
}

/** The object that holds a setting; optional ones on the way are made. */
function holderOf(target: object, root: SettingsClass, keys: readonly string[]): Record<string, unknown> {
  let holder = target as Record<string, unknown>;
  let type = root;
  for (const key of keys) {
    const shape = settingsOf(type).get(key)?.shape;
    if (shape?.shape !== 'object') throw new Error(`${key} is no object of the configuration`);
    type = shape.type();
    holder[key] ??= new type();
    holder = holder[key] as Record<string, unknown>;
  }
  return holder;
}
