/**
 * Decorators for the configuration classes. Each says three things at once, so that they cannot drift apart:
 * how a value is read (unit, shape), which values are valid (class-validator), and what it means (documentation).
 */
import {
  Allow,
  ArrayMaxSize,
  ArrayMinSize,
  IsArray,
  IsBoolean,
  IsDefined,
  IsIn,
  IsInt,
  IsNumber,
  IsObject,
  IsOptional,
  IsString,
  Matches,
  Max,
  MaxLength,
  Min,
  ValidateBy,
  type ValidationArguments,
} from 'class-validator';
import { didYouMean } from '../shared/nearest.js';
import { parseAddress, parseEndpointUrl, ADDRESS_EXPECTED } from './address.js';
import {
  DURATION,
  NUMBER,
  SHARE,
  SIZE,
  TEXT,
  textKind,
  TOGGLE,
  WHOLE,
  type JsonSchema,
  type ScalarKind,
} from './scalar-kinds.js';
import { formatDuration, type Parsed } from './units.js';

export type SettingsClass = new () => object;

/** One element of a list or map, or a setting that is no collection. */
export type ElementShape =
  | { readonly shape: 'scalar'; readonly kind: ScalarKind }
  | { readonly shape: 'object'; readonly type: () => SettingsClass }
  /** Text, or a map read as `type`. */
  | { readonly shape: 'textOrObject'; readonly type: () => SettingsClass };

export type SettingShape =
  | ElementShape
  | { readonly shape: 'list'; readonly item: ElementShape; readonly of: string }
  | {
      readonly shape: 'map';
      readonly value: ElementShape;
      readonly of: string;
      readonly keyRule: TextRule;
      /** The only keys there are, when they are known. */
      readonly keys?: readonly string[];
    };

export interface SettingOptions {
  /** One or two sentences for the documentation. */
  readonly doc: string;
  readonly required?: boolean;
  /** Never shown in clear. */
  readonly secret?: boolean;
  /** Shown in the documentation in place of a missing default. */
  readonly unset?: string;
  /** A running server keeps what it started with: a reload names the change instead of making it. */
  readonly atStart?: boolean;
}

export interface SettingMeta extends SettingOptions {
  readonly key: string;
  readonly shape: SettingShape;
  /** What the validators narrow further, for the JSON Schema. */
  readonly schema: JsonSchema;
}

const registry = new WeakMap<object, Map<string, SettingMeta>>();

/** The settings of a configuration class by key, in the order they are declared. */
export function settingsOf(type: SettingsClass): ReadonlyMap<string, SettingMeta> {
  return registry.get(type.prototype as object) ?? new Map<string, SettingMeta>();
}

function setting(
  shape: SettingShape,
  options: SettingOptions,
  validators: readonly PropertyDecorator[],
  schema: JsonSchema = {},
): PropertyDecorator {
  const presence = options.required
    ? IsDefined({ message: `is required: expected ${expectedOf(shape)}` })
    : IsOptional();
  return (target, key) => {
    const settings = registry.get(target) ?? new Map<string, SettingMeta>();
    registry.set(target, settings);
    settings.set(String(key), { ...options, key: String(key), shape, schema });
    for (const decorate of [presence, ...validators]) decorate(target, key);
  };
}

function expectedOf(shape: SettingShape): string {
  if (shape.shape === 'list') return `a list of ${shape.of}`;
  if (shape.shape === 'map') return `a map of ${shape.of}`;
  return shape.shape === 'scalar' ? shape.kind.expected : 'a map of settings';
}

/** What a piece of text must look like. */
export interface TextRule {
  readonly pattern: RegExp;
  /** Completes "expected ...". */
  readonly expected: string;
  readonly maxLength?: number;
}

const got = (args: ValidationArguments): string => `got ${JSON.stringify(args.value)}`;

function ruleValidators(rule: TextRule | undefined, each: boolean): PropertyDecorator[] {
  if (rule === undefined) return [IsString({ each })];
  const message = (args: ValidationArguments) => `expected ${rule.expected}, ${got(args)}`;
  return [
    IsString({ each }),
    MaxLength(rule.maxLength ?? 4_096, { each, message }),
    Matches(rule.pattern, { each, message }),
  ];
}

const scalar = (kind: ScalarKind): ElementShape => ({ shape: 'scalar', kind });

export const Text = (options: SettingOptions & { rule?: TextRule }): PropertyDecorator =>
  setting(
    scalar(TEXT),
    options,
    ruleValidators(options.rule ?? NOT_EMPTY, false),
    options.rule === undefined ? { minLength: 1 } : { pattern: options.rule.pattern.source },
  );

export const Choice = (values: readonly string[], options: SettingOptions): PropertyDecorator =>
  setting(
    scalar(textKind(values.join(' \\| '), oneOf(values), false)),
    options,
    [
      IsIn([...values], {
        message: (args: ValidationArguments) =>
          `expected ${oneOf(values)}, ${got(args)}${didYouMean(String(args.value), values)}`,
      }),
    ],
    { enum: values },
  );

const oneOf = (values: readonly string[]): string => `one of ${values.join(', ')}`;

export const Toggle = (options: SettingOptions): PropertyDecorator =>
  setting(scalar(TOGGLE), options, [IsBoolean()]);

interface Bounds {
  readonly min: number;
  readonly max: number;
}

function boundValidators({ min, max }: Bounds, write: (value: number) => string): PropertyDecorator[] {
  const message = (args: ValidationArguments) =>
    `expected ${write(min)} to ${write(max)}, got ${write(args.value as number)}`;
  return [Min(min, { message }), Max(max, { message })];
}

export const Whole = (options: SettingOptions & Bounds): PropertyDecorator =>
  setting(scalar(WHOLE), options, [IsInt(), ...boundValidators(options, String)], {
    minimum: options.min,
    maximum: options.max,
  });

export const Decimal = (options: SettingOptions & Bounds): PropertyDecorator =>
  setting(scalar(NUMBER), options, [IsNumber(), ...boundValidators(options, String)], {
    minimum: options.min,
    maximum: options.max,
  });

/** `off: true` where `0s` switches the thing off; elsewhere zero would mean "at once, always" and is refused. */
export const Duration = (options: SettingOptions & { off?: boolean; minMs?: number }): PropertyDecorator => {
  const min = options.minMs ?? 1;
  return setting(scalar(DURATION), options, [
    ValidateBy({
      name: 'duration',
      validator: {
        validate: (value) =>
          Number.isSafeInteger(value) && (value === 0 ? options.off === true : value >= min),
        defaultMessage: (args) =>
          args?.value === 0
            ? `cannot be switched off; expected at least ${formatDuration(min)}`
            : `expected at least ${formatDuration(min)}`,
      },
    }),
  ]);
};

export const Size = (options: SettingOptions & { minBytes?: number }): PropertyDecorator => {
  const message = `expected at least ${options.minBytes ?? 1} bytes`;
  return setting(scalar(SIZE), options, [IsInt(), Min(options.minBytes ?? 1, { message })]);
};

export const Percent = (options: SettingOptions): PropertyDecorator =>
  setting(scalar(SHARE), options, [IsNumber(), Min(0), Max(1)]);

/** A value that one of our own parsers must take. */
function parsedBy(name: string, parse: (text: string) => Parsed<unknown>): PropertyDecorator {
  return ValidateBy({
    name,
    validator: {
      validate: (value) => typeof value === 'string' && parse(value).ok,
      defaultMessage: (args) => {
        const parsed = parse(String(args?.value));
        return parsed.ok ? '' : parsed.problem;
      },
    },
  });
}

/** `host:port`. */
export const Address = (options: SettingOptions): PropertyDecorator =>
  setting(scalar(textKind('host:port', ADDRESS_EXPECTED, false)), options, [
    parsedBy('address', parseAddress),
  ]);

export const EndpointUrl = (options: SettingOptions): PropertyDecorator =>
  setting(scalar(textKind('URL', 'a URL such as http://127.0.0.1:8000', false)), options, [
    parsedBy('endpointUrl', parseEndpointUrl),
  ]);

export const TextList = (
  options: SettingOptions & { of: string; rule?: TextRule; repeatable?: boolean },
): PropertyDecorator =>
  setting({ shape: 'list', item: scalar(TEXT), of: options.of }, options, [
    IsArray(),
    ...ruleValidators(options.rule, true),
    ...(options.repeatable === true ? [] : [noTwice()]),
    ...(options.required === true ? [ArrayMinSize(1, { message: 'expected at least one' })] : []),
  ]);

function noTwice(): PropertyDecorator {
  const firstTwice = (value: unknown): unknown =>
    Array.isArray(value) ? value.find((item, index) => value.indexOf(item) !== index) : undefined;
  return ValidateBy({
    name: 'noTwice',
    validator: {
      validate: (value) => firstTwice(value) === undefined,
      defaultMessage: (args) => `lists ${JSON.stringify(firstTwice(args?.value))} twice`,
    },
  });
}

/** A range of two numbers: `[20000, 20999]`. */
export const Range = (options: SettingOptions & Bounds): PropertyDecorator =>
  setting(
    { shape: 'list', item: scalar(WHOLE), of: 'whole numbers' },
    options,
    [
      ArrayMinSize(2, { message: 'expected two numbers: [first, last]' }),
      ArrayMaxSize(2, { message: 'expected two numbers: [first, last]' }),
      IsInt({ each: true }),
      Min(options.min, { each: true, message: `expected numbers from ${options.min} to ${options.max}` }),
      Max(options.max, { each: true, message: `expected numbers from ${options.min} to ${options.max}` }),
      ValidateBy({
        name: 'ascending',
        validator: {
          validate: (value) => Array.isArray(value) && Number(value[0]) <= Number(value[1]),
          defaultMessage: () => 'the first number must not be above the last',
        },
      }),
    ],
    { minItems: 2, maxItems: 2 },
  );

export const TextMap = (
  options: SettingOptions & { of: string; keyRule: TextRule; valueRule?: TextRule },
): PropertyDecorator => {
  const rule = options.valueRule;
  return setting(
    { shape: 'map', value: scalar(TEXT), of: options.of, keyRule: options.keyRule },
    options,
    rule === undefined
      ? [IsObject()]
      : [
          ValidateBy({
            name: 'values',
            validator: {
              validate: (value) => Object.values(value as object).every((text) => rule.pattern.test(text)),
              defaultMessage: () => `expected ${rule.expected} as values`,
            },
          }),
        ],
  );
};

/** Text, or an object read as `type`, by name. */
export const TextOrObjectMap = (
  type: () => SettingsClass,
  options: SettingOptions & { of: string; keyRule: TextRule },
): PropertyDecorator =>
  setting(
    { shape: 'map', value: { shape: 'textOrObject', type }, of: options.of, keyRule: options.keyRule },
    options,
    [IsObject()],
  );

export const Nested = (type: () => SettingsClass, options: SettingOptions): PropertyDecorator =>
  setting({ shape: 'object', type }, options, [Allow()]);

export const NestedList = (
  type: () => SettingsClass,
  options: SettingOptions & { of: string },
): PropertyDecorator =>
  setting({ shape: 'list', item: { shape: 'object', type }, of: options.of }, options, [IsArray()]);

export const NestedMap = (
  type: () => SettingsClass,
  options: SettingOptions & { of: string; keyRule: TextRule; keys?: readonly string[] },
): PropertyDecorator =>
  setting(
    {
      shape: 'map',
      value: { shape: 'object', type },
      of: options.of,
      keyRule: options.keyRule,
      ...(options.keys === undefined ? {} : { keys: options.keys }),
    },
    options,
    [IsObject()],
  );

// ---------------------------------------------------------------- rules for names

export const NOT_EMPTY: TextRule = {
  // No control characters: they would let a file forge lines in logs and tables.
  pattern: /^[^\p{Cc}]+$/u,
  expected: 'text without control characters, not empty',
};

/** Ids that become parts of paths, labels and file names. */
export const ID: TextRule = {
  pattern: /^[A-Za-z0-9][A-Za-z0-9._-]*$/,
  expected: 'letters, digits, ".", "_" and "-", beginning with a letter or digit, at most 63',
  maxLength: 63,
};

/**
 * Model names and aliases, as clients send them: `org/name`, `name:tag` and the like. A leading `-` would be read as a
 * flag by an engine, a leading `_` is kept for our own labels, a comma separates models in `--endpoint`.
 */
export const MODEL_NAME: TextRule = {
  pattern: /^[^\s\p{Cc}"'`\\,_-][^\s\p{Cc}"'`\\,]*$/u,
  expected:
    'a name without blanks, quotes, commas or backslashes, not beginning with "-" or "_", at most 255 long',
  maxLength: 255,
};

export const LABEL_KEY: TextRule = {
  pattern: /^[A-Za-z0-9][A-Za-z0-9._/-]*$/,
  expected: 'letters, digits, ".", "_", "-" and "/", beginning with a letter or digit',
  maxLength: 63,
};

export const ENV_NAME: TextRule = {
  pattern: /^(?!__proto__$)[A-Za-z_][A-Za-z0-9_]*$/,
  expected: 'the name of an environment variable',
  maxLength: 255,
};
