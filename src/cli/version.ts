import { readFileSync } from 'node:fs';

/** Version of this build, from the package it stands in. */
export function buildVersion(): string {
  // The same relative place from src/cli and from dist/cli.
  const text = readFileSync(new URL('../../package.json', import.meta.url), 'utf8');
  return (JSON.parse(text) as { version: string }).version;
}
