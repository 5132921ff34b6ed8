/** What a new catalog changes against the old one, model by model: shown before a reload and by `plan -f FILE`. */
import type { ModelSpec, Profile } from '../model-spec.js';
import { canonical, specDigest } from './spec-digest.js';

/** One model's change. `rolls` says whether running engines are replaced because of it. */
export interface ModelChange {
  readonly model: string;
  readonly kind: 'added' | 'removed' | 'changed';
  readonly changes: readonly FieldChange[];
  /** Profiles whose engines must be replaced: their digest differs or they are gone. */
  readonly rolls: readonly string[];
}

/** One changed field by its path within the model, e.g. `profiles[h100].args`. */
export interface FieldChange {
  readonly path: string;
  readonly before?: string;
  readonly after?: string;
}

/** How a field's value is shown; the place to hide secrets. What has changed is judged by the value itself. */
export type ShownAs = (field: string, value: unknown) => unknown;

const AS_IT_IS: ShownAs = (_field, value) => value;

/** Compares two catalogs; models without a difference are not listed. Sorted by model name. */
export function diffCatalog(
  before: readonly ModelSpec[],
  after: readonly ModelSpec[],
  shownAs: ShownAs = AS_IT_IS,
): readonly ModelChange[] {
  const old = new Map(before.map((model) => [model.name, model]));
  const now = new Map(after.map((model) => [model.name, model]));
  const names = [...new Set([...old.keys(), ...now.keys()])].toSorted();
  return names.flatMap((name) => {
    const change = diffModel(old.get(name), now.get(name), shownAs);
    return change === undefined ? [] : [change];
  });
}

function diffModel(
  before: ModelSpec | undefined,
  after: ModelSpec | undefined,
  shownAs: ShownAs,
): ModelChange | undefined {
  if (before === undefined && after !== undefined)
    return { model: after.name, kind: 'added', changes: [], rolls: [] };
  if (before !== undefined && after === undefined)
    return {
      model: before.name,
      kind: 'removed',
      changes: [],
      rolls: before.profiles.map(({ name }) => name),
    };
  if (before === undefined || after === undefined) return undefined;
  const changes = [
    ...diffFields(modelFields(before), modelFields(after), '', shownAs),
    ...diffProfiles(before, after, shownAs),
  ];
  if (changes.length === 0) return undefined;
  return { model: after.name, kind: 'changed', changes, rolls: rolledProfiles(before, after) };
}

function modelFields(model: ModelSpec): Record<string, unknown> {
  const { name: _name, profiles, placement, ...fields } = model;
  const rules = Object.entries(placement).map(([key, value]) => [`placement.${key}`, value]);
  return {
    ...fields,
    ...(Object.fromEntries(rules) as Record<string, unknown>),
    profileOrder: profiles.map((profile) => profile.name),
  };
}

function diffProfiles(before: ModelSpec, after: ModelSpec, shownAs: ShownAs): readonly FieldChange[] {
  const [old, now] = [byName(before.profiles), byName(after.profiles)];
  return [...new Set([...old.keys(), ...now.keys()])].flatMap((name) => {
    const [was, is] = [old.get(name), now.get(name)];
    const prefix = `profiles[${name}]`;
    if (was !== undefined && is !== undefined)
      return diffFields({ ...was }, { ...is }, `${prefix}.`, shownAs);
    // A whole profile is told in one word; its fields stand in the file.
    return [
      {
        path: prefix,
        ...(was === undefined ? {} : { before: canonical(was.engine) }),
        ...(is === undefined ? {} : { after: canonical(is.engine) }),
      },
    ];
  });
}

function diffFields(
  before: Record<string, unknown>,
  after: Record<string, unknown>,
  prefix: string,
  shownAs: ShownAs,
): readonly FieldChange[] {
  const keys = [...new Set([...Object.keys(before), ...Object.keys(after)])].toSorted();
  return keys.flatMap((key) => {
    const [was, is] = [before[key], after[key]];
    if (text(was) === text(is)) return [];
    return [
      {
        path: prefix + key,
        ...(was === undefined ? {} : { before: text(shownAs(key, was)) ?? '' }),
        ...(is === undefined ? {} : { after: text(shownAs(key, is)) ?? '' }),
      },
    ];
  });
}

function text(value: unknown): string | undefined {
  return value === undefined ? undefined : canonical(value);
}

function rolledProfiles(before: ModelSpec, after: ModelSpec): readonly string[] {
  const now = byName(after.profiles);
  return before.profiles
    .filter((profile) => {
      const next = now.get(profile.name);
      return next === undefined || specDigest(before, profile) !== specDigest(after, next);
    })
    .map((profile) => profile.name);
}

function byName(profiles: readonly Profile[]): ReadonlyMap<string, Profile> {
  return new Map(profiles.map((profile) => [profile.name, profile]));
}
