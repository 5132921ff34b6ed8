/** The project's files as text, for tests about the text. */
import { readFileSync, readdirSync } from 'node:fs';
import { dirname, join, normalize, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

export const ROOT = resolve(dirname(fileURLToPath(import.meta.url)), '..', '..');

export interface TextFile {
  /** From the root, with `/`. */
  readonly path: string;
  readonly text: string;
}

/** What is made and not written; kept like .gitignore, but read without git, which a machine need not have. */
const NOT_OURS = new Set(['node_modules', 'dist', '.git', '.llmgw', '.llmgw-agent', 'coverage', 'out']);

/** Paths of the project's own files, in a fixed order. */
export function projectFiles(folder = ''): string[] {
  return readdirSync(join(ROOT, folder), { withFileTypes: true })
    .toSorted((a, b) => a.name.localeCompare(b.name))
    .flatMap((entry) => {
      const path = folder === '' ? entry.name : `${folder}/${entry.name}`;
      if (NOT_OURS.has(entry.name)) return [];
      if (entry.isDirectory()) return projectFiles(path);
      return entry.isFile() && !path.endsWith('.tsbuildinfo') ? [path] : [];
    });
}

export const read = (path: string): TextFile => ({ path, text: readFileSync(join(ROOT, path), 'utf8') });

export const isSource = (path: string): boolean =>
  path.startsWith('src/') && path.endsWith('.ts') && !path.endsWith('.spec.ts');

export interface Import {
  /** As written. */
  readonly specifier: string;
  /** For relative ones: path of the imported source file. */
  readonly file?: string;
  readonly kind: 'value' | 'type' | 'dynamic';
}

const STATIC = /^(?:import|export)\s+(type\s)?(?:[^;'"]*?\sfrom\s+)?'([^']+)'/gm;
const DYNAMIC = /\bimport\(\s*'([^']+)'/g;

export function importsOf({ path, text }: TextFile): Import[] {
  const found = (specifier: string, kind: Import['kind']): Import =>
    specifier.startsWith('.')
      ? { specifier, kind, file: normalize(join(dirname(path), specifier)).replace(/\.js$/, '.ts') }
      : { specifier, kind };
  return [
    ...[...text.matchAll(STATIC)].map(([, type, specifier]) =>
      found(specifier!, type === undefined ? 'value' : 'type'),
    ),
    ...[...text.matchAll(DYNAMIC)].map(([, specifier]) => found(specifier!, 'dynamic')),
  ];
}

/** `src/router/bytes/head.ts` → `router`; files at the top of `src` have the room `main`. */
export function roomOf(path: string): string {
  const parts = path.split('/');
  return parts.length > 2 ? parts[1]! : 'main';
}

/** The code without comments and strings, so that words about a thing are not taken for the thing. */
export function codeOnly(text: string): string {
  return text
    .replace(/\/\*[\s\S]*?\*\//g, (comment) => comment.replace(/[^\n]/g, ' '))
    .replace(/(^|[^:'"`\\])\/\/[^\n]*/g, '$1')
    .replace(/'(?:[^'\\\n]|\\.)*'/g, "''");
}
