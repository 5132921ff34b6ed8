/** Configuration as it is written in a file again: with units, and with secrets masked. */
import { maskUserinfo } from './address.js';
import { LOOKS_SECRET } from './check-server.js';
import { settingsOf, type ElementShape, type SettingMeta, type SettingsClass } from './setting.js';
import { joinPath, type Origin } from './settings-reader.js';
import { originOf } from './validate-settings.js';

const MASK = '[masked]';

/** The configuration as plain data for people and the admin API: units as in the file, no secret in clear. */
export function maskConfig(config: object): Record<string, unknown> {
  const written: Record<string, unknown> = {};
  for (const [key, meta] of settingsOf(config.constructor as SettingsClass)) {
    const value = (config as Record<string, unknown>)[key];
    if (value !== undefined) written[key] = writeSetting(meta, value);
  }
  return written;
}

/** One setting's value as it is written in a file, secrets masked. */
export function writeSetting(meta: SettingMeta, value: unknown): unknown {
  if (meta.secret === true) return MASK;
  const { shape } = meta;
  if (shape.shape === 'list') {
    return maskArguments((value as unknown[]).map((item) => writeElement(shape.item, item)));
  }
  if (shape.shape !== 'map') return writeElement(shape, value);
  const entries = Object.entries(value as object).map(([name, item]) => {
    const secret = typeof item === 'string' && LOOKS_SECRET.test(name);
    return [name, secret ? MASK : writeElement(shape.value, item)];
  });
  return Object.fromEntries(entries) as unknown;
}

/** One element of a list or map of settings as it is written in a file. */
export function writeElement(shape: ElementShape, value: unknown): unknown {
  if (shape.shape === 'scalar') {
    const written = shape.kind.write(value);
    return typeof written === 'string' ? maskUserinfo(written) : written;
  }
  return typeof value === 'object' && value !== null ? maskConfig(value) : value;
}

/** `--api-key VALUE` and `--api-key=VALUE`: a key where none should be is still not shown. */
export function maskArguments(items: readonly unknown[]): unknown[] {
  return items.map((item, index) => {
    if (typeof item !== 'string') return item;
    const assigned = /^(--?[\w-]+)=/.exec(item);
    if (assigned?.[1] !== undefined && LOOKS_SECRET.test(assigned[1])) return `${assigned[1]}=${MASK}`;
    const before = items[index - 1];
    const named = typeof before === 'string' && /^--?[\w-]+$/.test(before) && LOOKS_SECRET.test(before);
    return named && !item.startsWith('-') ? MASK : item;
  });
}

export interface ShownValue {
  readonly path: string;
  readonly value: string | number | boolean | readonly [] | Record<string, never>;
  readonly origin: Origin;
}

const DEFAULT_ORIGIN: Origin = { kind: 'default', source: '' };

/** Every value in force with where it comes from, in the order of the classes. */
export function shownValues(config: object, origins: ReadonlyMap<string, Origin>): ShownValue[] {
  const shown: ShownValue[] = [];
  const visit = (value: unknown, path: string): void => {
    if (typeof value === 'object' && value !== null && Object.keys(value).length > 0) {
      const isList = Array.isArray(value);
      for (const [key, item] of Object.entries(value)) {
        visit(item, isList ? `${path}[${key}]` : joinPath(path, key));
      }
      return;
    }
    const origin = leafOrigin(origins, path);
    shown.push({ path, value: value as ShownValue['value'], origin });
  };
  visit(maskConfig(config), '');
  return shown;
}

/** A container's place in the file says nothing about the defaults filled in beside it; list elements come whole. */
function leafOrigin(origins: ReadonlyMap<string, Origin>, path: string): Origin {
  const exact = origins.get(path);
  if (exact !== undefined) return exact;
  const holder = originOf(origins, path);
  return holder?.kind === 'flag' ? holder : DEFAULT_ORIGIN;
}

/** `default`, `LLMGW_LISTEN`, `--listen` or `llmgw.yaml:3`. */
export function originText(origin: Origin): string {
  if (origin.kind === 'default') return 'default';
  return origin.line === undefined ? origin.source : `${origin.source}:${origin.line}`;
}
