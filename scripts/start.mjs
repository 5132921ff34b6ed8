/** `npm start`: installs and builds what is out of date, then runs `llmgw up` in this process. */
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { ensureBuilt } from './lib/build.mjs';
import { ensureInstalled } from './lib/install.mjs';
import { ProgramFailed, ROOT, requireNode } from './lib/run.mjs';

requireNode();
try {
  await ensureInstalled();
  await ensureBuilt();
} catch (error) {
  if (!(error instanceof ProgramFailed)) throw error;
  console.error(error.message);
  process.exit(error.exitCode);
}
const main = join(ROOT, 'dist', 'main.js');
process.argv.splice(1, 1, main, 'up');
await import(pathToFileURL(main).href);
