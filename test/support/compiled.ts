import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';

const ROOT = resolve(dirname(fileURLToPath(import.meta.url)), '..', '..');

/** Some of our sources as JavaScript that a plain child process can import; no build is needed. */
export interface CompiledSources {
  /** Where the folder of a source folder (`src/store`) is. */
  path(source: string): string;
  remove(): void;
}

/** Compiles the named folders of the repository, types unchecked, into a folder of its own. */
export function compileSources(folders: readonly string[]): CompiledSources {
  const out = mkdtempSync(join(tmpdir(), 'llmgw-compiled-'));
  // Bare imports resolve upwards from the file, so the packages must be found there.
  symlinkSync(join(ROOT, 'node_modules'), join(out, 'node_modules'));
  writeFileSync(join(out, 'package.json'), '{"type":"module"}');
  for (const folder of folders) compileFolder(join(ROOT, folder), out);
  return { path: (source) => join(out, source), remove: () => rmSync(out, { recursive: true, force: true }) };
}

function compileFolder(folder: string, out: string): void {
  const target = join(out, relative(ROOT, folder));
  mkdirSync(target, { recursive: true });
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) compileFolder(path, out);
    if (!entry.isFile() || !entry.name.endsWith('.ts') || entry.name.endsWith('.spec.ts')) continue;
    const { outputText } = ts.transpileModule(readFileSync(path, 'utf8'), {
      compilerOptions: {
        module: ts.ModuleKind.ESNext,
        target: ts.ScriptTarget.ES2023,
        experimentalDecorators: true,
        emitDecoratorMetadata: true,
        verbatimModuleSyntax: true,
      },
    });
    writeFileSync(join(target, entry.name.replace(/\.ts$/, '.js')), outputText);
  }
}
