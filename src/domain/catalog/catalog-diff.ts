/** What a new catalog changes against the old one, model by model: shown before a reload and by `plan -f FILE`. */
import type { ModelSpec, Profile } from '../cluster.js';
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

/** Compares two catalogs; models without a difference are not listed. Sorted by model name. */
export function diffCatalog(
  before: readonly ModelSpec[],
  after: readonly ModelSpec[],
): readonly ModelChange[] {
  const old = new Map(before.map((model) => [model.name, model]));
  const now = new Map(after.map((model) => [model.name, model]));
  const names = [...new Set([...old.keys(), ...now.keys()])].toSorted();
  return names.flatMap((name) => {
    const change = diffModel(old.get(name), now.get(name));
    return change === undefined ? [] : [change];
  });
}

function diffModel(before: ModelSpec | undefined, after: ModelSpec | undefined): ModelChange | undefined {
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
    ...diffFields(modelFields(before), modelFields(after), ''),
    ...diffProfiles(before, after),
  ];
  if (changes.length === 0) return undefined;
  return { model: after.name, kind: 'changed', changes, rolls: rolledProfiles(before, after) };
}

function modelFields(model: ModelSpec): Record<string, unknown> {
  const { name: _name, profiles, ...fields } = model;
  return { ...fields, profileOrder: profiles.map((profile) => profile.name) };
}

function diffProfiles(before: ModelSpec, after: ModelSpec): readonly FieldChange[] {
  const old = byName(before.profiles);
  return after.profiles.flatMap((profile) => {
    const former = old.get(profile.name);
    if (former === undefined) return [];
    return diffFields({ ...former }, { ...profile }, `profiles[${profile.name}].`);
  });
}

function diffFields(
  before: Record<string, unknown>,
  after: Record<string, unknown>,
  prefix: string,
): readonly FieldChange[] {
  const keys = [...new Set([...Object.keys(before), ...Object.keys(after)])].toSorted();
  return keys.flatMap((key) => {
    const [was, is] = [shown(before[key]), shown(after[key])];
    if (was === is) return [];
    return [
      {
        path: prefix + key,
        ...(was === undefined ? {} : { before: was }),
        ...(is === undefined ? {} : { after: is }),
      },
    ];
  });
}

function shown(value: unknown): string | undefined {
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
