import { existsSync } from 'node:fs';
import path from 'node:path';
import { describe, it } from 'vitest';

const PACKAGES = path.join(import.meta.dirname, 'node_modules');

/** Why the specs of this folder cannot run, or undefined when they can. */
export const clientsMissing: string | undefined = ['openai', 'openai-7', 'ai', '@anthropic-ai/sdk'].every(
  (name) => existsSync(path.join(PACKAGES, name, 'package.json')),
)
  ? undefined
  : 'the client libraries are not installed: run .ci/steps/clients.sh';

/** `describe` for specs that need the client libraries: without them there is one skipped test that says why. */
export function describeClients(title: string, body: () => void): void {
  if (clientsMissing === undefined) return void describe(title, body);
  process.stderr.write(`skipped: ${title}: ${clientsMissing}\n`);
  describe(title, () => it.skip(clientsMissing ?? ''));
}
