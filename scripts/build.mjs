/** `npm run build`: compiles src/ into dist/. */
import { ensureBuilt } from './lib/build.mjs';
import { ProgramFailed } from './lib/run.mjs';

try {
  await ensureBuilt({ force: true });
} catch (error) {
  if (!(error instanceof ProgramFailed)) throw error;
  process.exit(error.exitCode);
}
