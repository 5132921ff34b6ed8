// Runs a TypeScript program of this repository with plain node: `node scripts/run-ts.mjs test/sim/main.ts --seeds 10`.
// Compiles the files the entry imports, types unchecked, into a folder of its own that is gone when the program ends.
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, relative, resolve } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import ts from 'typescript';

const ROOT = resolve(dirname(fileURLToPath(import.meta.url)), '..');
const OPTIONS = {
  module: ts.ModuleKind.ESNext,
  target: ts.ScriptTarget.ES2023,
  experimentalDecorators: true,
  emitDecoratorMetadata: true,
  verbatimModuleSyntax: true,
  inlineSourceMap: true,
};

/**
 * Compiles `entry` and what it imports into a new folder. `patch(path, text)` may change a source before it is compiled; paths are
 * relative to the repository. Returns the compiled entry and the folder.
 */
export function compileGraph(entry, patch = (_path, text) => text) {
  const out = mkdtempSync(join(tmpdir(), 'llmgw-run-'));
  for (const shared of ['node_modules', 'proto']) symlinkSync(join(ROOT, shared), join(out, shared));
  writeFileSync(join(out, 'package.json'), '{"type":"module"}');
  const waiting = [resolve(ROOT, entry)];
  const done = new Set(waiting);
  for (let file = waiting.pop(); file !== undefined; file = waiting.pop()) {
    const path = relative(ROOT, file);
    const text = patch(path, readFileSync(file, 'utf8'));
    const { outputText } = ts.transpileModule(text, { compilerOptions: OPTIONS, fileName: file });
    const target = join(out, path.replace(/\.ts$/, '.js'));
    mkdirSync(dirname(target), { recursive: true });
    writeFileSync(target, outputText);
    for (const [, name] of outputText.matchAll(/(?:from|import)\s*\(?\s*['"](\.{1,2}\/[^'"]+)\.js['"]/g)) {
      const next = resolve(dirname(file), `${name}.ts`);
      if (!done.has(next)) waiting.push(next);
      done.add(next);
    }
  }
  return { folder: out, entry: join(out, entry.replace(/\.ts$/, '.js')) };
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [, , entry, ...args] = process.argv;
  if (entry === undefined) {
    console.error('usage: node scripts/run-ts.mjs ENTRY.ts [arguments]');
    process.exit(2);
  }
  const { folder, entry: compiled } = compileGraph(entry);
  process.on('exit', () => rmSync(folder, { recursive: true, force: true }));
  process.argv = [process.argv[0], compiled, ...args];
  process.setSourceMapsEnabled(true);
  await import(pathToFileURL(compiled).href);
}
