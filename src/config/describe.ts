/** What the configuration classes say about themselves: the reference document and the JSON Schema. */
import type { JsonSchema } from './scalar-kinds.js';
import { settingsOf, type ElementShape, type SettingMeta, type SettingsClass } from './setting.js';
import { joinPath } from './settings-reader.js';
import { scalarSettings } from './overlay.js';

export interface SettingDescription {
  /** `models[].profiles[].gpus`, `router.profiles.<name>.policy`. */
  readonly path: string;
  /** `duration`, `list of model names`, `integer`. */
  readonly type: string;
  readonly doc: string;
  readonly required: boolean;
  /** As written in a file; undefined where there is none. */
  readonly default: string | undefined;
  /** What an absent value means. */
  readonly unset: string | undefined;
  /** Environment variable, for scalars outside lists and maps. */
  readonly variable: string | undefined;
  /** A running server does not take a change over. */
  readonly atStart: boolean;
}

/** Every setting below `root`, containers before what they hold. */
export function describeConfig(root: SettingsClass): SettingDescription[] {
  const variables = new Map(scalarSettings(root).map(({ path, variable }) => [path, variable]));
  const found: SettingDescription[] = [];
  const visit = (type: SettingsClass, prefix: string): void => {
    const defaults = new type() as Record<string, unknown>;
    for (const [key, meta] of settingsOf(type)) {
      const path = joinPath(prefix, key);
      found.push({
        path,
        type: typeName(meta),
        doc: meta.doc,
        required: meta.required === true,
        default: defaultText(meta, defaults[key]),
        unset: meta.unset,
        variable: variables.get(path),
        atStart: meta.atStart === true,
      });
      const inner = innerType(meta);
      if (inner !== undefined) visit(inner.type, `${path}${inner.suffix}`);
    }
  };
  visit(root, '');
  return found;
}

function typeName({ shape }: SettingMeta): string {
  switch (shape.shape) {
    case 'scalar':
      return shape.kind.name;
    case 'list':
      return `list of ${shape.of}`;
    case 'map':
      return `map of ${shape.of}`;
    case 'object':
    case 'textOrObject':
      return 'map';
  }
}

function innerType({ shape }: SettingMeta): { type: SettingsClass; suffix: string } | undefined {
  if (shape.shape === 'list') {
    return shape.item.shape === 'scalar' ? undefined : { type: shape.item.type(), suffix: '[]' };
  }
  if (shape.shape === 'map') {
    return shape.value.shape === 'scalar' ? undefined : { type: shape.value.type(), suffix: '.<name>' };
  }
  return shape.shape === 'scalar' ? undefined : { type: shape.type(), suffix: '' };
}

function defaultText({ shape }: SettingMeta, value: unknown): string | undefined {
  if (value === undefined) return undefined;
  if (shape.shape === 'scalar') return String(shape.kind.write(value));
  if (shape.shape === 'list') return JSON.stringify(value).replaceAll(',', ', ');
  // What a map of objects holds by default stands in the rows of its objects.
  return shape.shape === 'map' && Object.keys(value as object).length === 0 ? '{}' : undefined;
}

/** A JSON Schema (draft 2020-12) that editors can check files against. */
export function jsonSchema(root: SettingsClass, title: string): JsonSchema {
  return { $schema: 'https://json-schema.org/draft/2020-12/schema', title, ...objectSchema(root) };
}

function objectSchema(type: SettingsClass): JsonSchema {
  const settings = [...settingsOf(type)];
  const defaults = new type() as Record<string, unknown>;
  const required = settings.filter(([, meta]) => meta.required === true).map(([key]) => key);
  return {
    type: 'object',
    additionalProperties: false,
    ...(required.length === 0 ? {} : { required }),
    properties: Object.fromEntries(
      settings.map(([key, meta]) => [
        key,
        { description: meta.doc, ...settingSchema(meta), ...defaultSchema(meta, defaults[key]) },
      ]),
    ),
  };
}

function settingSchema(meta: SettingMeta): JsonSchema {
  const { shape } = meta;
  if (shape.shape === 'list') return { type: 'array', items: elementSchema(shape.item), ...meta.schema };
  if (shape.shape === 'map') {
    const names = shape.keys === undefined ? { pattern: shape.keyRule.pattern.source } : { enum: shape.keys };
    return { type: 'object', propertyNames: names, additionalProperties: elementSchema(shape.value) };
  }
  return { ...elementSchema(shape), ...meta.schema };
}

function elementSchema(shape: ElementShape): JsonSchema {
  if (shape.shape === 'scalar') return shape.kind.schema;
  const object = objectSchema(shape.type());
  return shape.shape === 'object' ? object : { anyOf: [{ type: 'string' }, object] };
}

function defaultSchema({ shape }: SettingMeta, value: unknown): JsonSchema {
  return shape.shape === 'scalar' && value !== undefined ? { default: shape.kind.write(value) } : {};
}

/** One table of settings as Markdown. */
export function settingsTable(root: SettingsClass): string {
  const rows = describeConfig(root).map((setting) =>
    [
      `\`${setting.path}\``,
      setting.type,
      setting.required ? '**required**' : absent(setting),
      setting.doc +
        (setting.atStart ? ' Needs a restart.' : '') +
        (setting.variable === undefined ? '' : `<br>\`${setting.variable}\``),
    ].join(' | '),
  );
  return [
    '| Setting | Type | Default | Meaning |',
    '|---|---|---|---|',
    ...rows.map((row) => `| ${row} |`),
  ].join('\n');
}

function absent({ default: value, unset }: SettingDescription): string {
  if (value !== undefined) return `\`${value}\``;
  return unset ?? '';
}
