/** Runs class-validator over a tree of configuration classes and gives every finding its place. */
import { validateSync } from 'class-validator';
import type { ConfigProblem } from '../shared/errors.js';
import { settingsOf, type ElementShape, type SettingsClass } from './setting.js';
import { joinPath, type Findings, type Origin } from './settings-reader.js';

/** Adds a problem for each value that a validator refuses. Paths that could not even be read are left alone. */
export function validateSettings(root: object, findings: Findings): void {
  const unreadable = findings.problems.map((problem) => problem.path ?? '');
  const knownBad = (at: string): boolean =>
    unreadable.some((path) => path === at || path.startsWith(`${at}[`) || path.startsWith(`${at}.`));
  visitSettings(root, '', (instance, path) => {
    if (path !== '' && unreadable.includes(path)) return;
    const errors = validateSync(instance, {
      whitelist: true,
      forbidNonWhitelisted: true,
      forbidUnknownValues: true,
      stopAtFirstError: true,
      validationError: { target: false },
    });
    for (const { property, constraints } of errors) {
      const at = joinPath(path, property);
      if (knownBad(at)) continue;
      const message = Object.values(constraints ?? {})[0] ?? 'is not valid';
      findings.problems.push(problemAt(findings, at, message));
    }
  });
}

/** Calls back for every configuration object of the tree, outermost first. */
export function visitSettings(
  root: object,
  path: string,
  visit: (instance: object, path: string) => void,
): void {
  visit(root, path);
  for (const [key, { shape }] of settingsOf(root.constructor as SettingsClass)) {
    const value = (root as Record<string, unknown>)[key];
    const at = joinPath(path, key);
    if (value === undefined) continue;
    if (shape.shape === 'list') {
      visitElements(shape.item, Object.entries(value as unknown[]), (index) => `${at}[${index}]`, visit);
    } else if (shape.shape === 'map') {
      visitElements(shape.value, Object.entries(value as object), (name) => joinPath(at, name), visit);
    } else {
      visitElements(shape, [['', value]], () => at, visit);
    }
  }
}

function visitElements(
  shape: ElementShape,
  entries: readonly [string, unknown][],
  pathOf: (key: string) => string,
  visit: (instance: object, path: string) => void,
): void {
  if (shape.shape === 'scalar') return;
  for (const [key, value] of entries) {
    if (value instanceof shape.type()) visitSettings(value, pathOf(key), visit);
  }
}

/** A problem at the place of the path, or of the nearest container that has one. */
export function problemAt(findings: Findings, path: string, message: string): ConfigProblem {
  const origin = originOf(findings.origins, path);
  return {
    source: origin?.source ?? 'configuration',
    ...(origin?.line === undefined ? {} : { line: origin.line }),
    ...(origin?.column === undefined ? {} : { column: origin.column }),
    path,
    message,
  };
}

export function originOf(origins: ReadonlyMap<string, Origin>, path: string): Origin | undefined {
  for (let at = path; at !== ''; at = parentPath(at)) {
    const origin = origins.get(at);
    if (origin !== undefined) return origin;
  }
  return undefined;
}

/** `a.b[2].c` → `a.b[2]` → `a.b` → `a` → ``. */
function parentPath(path: string): string {
  return path.replace(/(^|\.)[^.[\]]+$|\[(?:\d+|"[^"]*")\]$/, '');
}
