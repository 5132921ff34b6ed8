import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** Version of this build, from the package it stands in; found upwards, from `src` as well as from `dist`. */
export function buildVersion(): string {
  let folder = dirname(fileURLToPath(import.meta.url));
  for (;;) {
    const path = join(folder, 'package.json');
    if (existsSync(path)) return (JSON.parse(readFileSync(path, 'utf8')) as { version: string }).version;
    const parent = dirname(folder);
    if (parent === folder) return 'unknown';
    folder = parent;
  }
}
