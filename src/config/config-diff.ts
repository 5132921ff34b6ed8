/** What one configuration changes against another, setting by setting; the models' part is told by the catalog's own comparison. */
import { canonical } from '../domain/catalog/spec-digest.js';
import { ServerConfig } from './server-config.js';
import { settingsOf, type ElementShape, type SettingMeta, type SettingsClass } from './setting.js';
import { joinPath } from './settings-reader.js';
import { writeElement, writeSetting } from './written.js';

/** One changed setting; texts as written in a file, secrets masked. */
export interface SettingChange {
  /** `router.profiles.interactive.queue.max`; elements of lists by their name: `endpoints[e1].weight`. */
  readonly path: string;
  /** Absent for what is new. */
  readonly before?: string;
  /** Absent for what is gone. */
  readonly after?: string;
  /** A running server keeps the former value. */
  readonly needsRestart: boolean;
}

/** In the order of the classes; empty for two configurations that mean the same, however they were written. */
export function diffSettings(before: ServerConfig, after: ServerConfig): readonly SettingChange[] {
  return diffObject(ServerConfig, before, after, '').filter(({ path }) => !/^models(\[|$)/.test(path));
}

type Slots = Readonly<Record<string, unknown>>;

function diffObject(type: SettingsClass, before: object, after: object, prefix: string): SettingChange[] {
  return [...settingsOf(type)].flatMap(([key, meta]) =>
    diffValue(meta, (before as Slots)[key], (after as Slots)[key], joinPath(prefix, key)),
  );
}

function diffValue(meta: SettingMeta, before: unknown, after: unknown, path: string): SettingChange[] {
  if (same(before, after)) return [];
  const { shape } = meta;
  const whole = before === undefined || after === undefined || meta.atStart === true;
  if (whole || shape.shape === 'scalar' || shape.shape === 'textOrObject')
    return [change(path, before, after, (value) => writeSetting(meta, value), meta.atStart === true)];
  if (shape.shape === 'object') return diffObject(shape.type(), before as object, after as object, path);
  if (shape.shape === 'map')
    return diffElements(
      shape.value,
      new Map(Object.entries(before as object)),
      new Map(Object.entries(after as object)),
      (name) => joinPath(path, name),
    );
  const [was, is] = [byName(before as unknown[]), byName(after as unknown[])];
  // Elements without names of their own have no identity that a comparison could go by.
  if (was === undefined || is === undefined)
    return [change(path, before, after, (value) => writeSetting(meta, value), false)];
  return diffElements(shape.item, was, is, (name) => `${path}[${name}]`);
}

function diffElements(
  shape: ElementShape,
  before: ReadonlyMap<string, unknown>,
  after: ReadonlyMap<string, unknown>,
  pathOf: (name: string) => string,
): SettingChange[] {
  const names = [...new Set([...before.keys(), ...after.keys()])];
  return names.flatMap((name) => {
    const [was, is] = [before.get(name), after.get(name)];
    if (same(was, is)) return [];
    const objects = isObject(was) && isObject(is);
    if (objects && shape.shape !== 'scalar') return diffObject(shape.type(), was, is, pathOf(name));
    return [change(pathOf(name), was, is, (value) => writeElement(shape, value), false)];
  });
}

function byName(elements: readonly unknown[]): ReadonlyMap<string, unknown> | undefined {
  const names = elements.map((element) => {
    const { id, name } = (isObject(element) ? element : {}) as { id?: unknown; name?: unknown };
    return id ?? name;
  });
  if (!names.every((name): name is string => typeof name === 'string')) return undefined;
  return new Map(names.map((name, index) => [name, elements[index]]));
}

function change(
  path: string,
  before: unknown,
  after: unknown,
  write: (value: unknown) => unknown,
  needsRestart: boolean,
): SettingChange {
  const text = (value: unknown): string => {
    const written = write(value);
    return typeof written === 'string' ? written : JSON.stringify(written);
  };
  return {
    path,
    ...(before === undefined ? {} : { before: text(before) }),
    ...(after === undefined ? {} : { after: text(after) }),
    needsRestart,
  };
}

const same = (a: unknown, b: unknown): boolean =>
  a === undefined || b === undefined ? a === b : canonical(a) === canonical(b);

const isObject = (value: unknown): value is object => typeof value === 'object' && value !== null;
