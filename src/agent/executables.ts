/** Finds programs as a shell would. */
import { accessSync, constants, statSync } from 'node:fs';
import { access, stat } from 'node:fs/promises';
import { delimiter, isAbsolute, join, resolve } from 'node:path';

/** Where a program could be: its own path, or each directory of PATH in order. */
function candidates(name: string | undefined, path: string | undefined): string[] {
  if (name === undefined || name === '') return [];
  if (name.includes('/')) return [resolve(name)];
  return (path ?? '')
    .split(delimiter)
    .filter((directory) => isAbsolute(directory))
    .map((directory) => join(directory, name));
}

/** Absolute path of a program; undefined when it cannot be run. Never blocks: programs may lie on a file server that hangs. */
export async function findExecutable(
  name: string | undefined,
  path: string | undefined,
): Promise<string | undefined> {
  for (const candidate of candidates(name, path)) {
    try {
      await access(candidate, constants.X_OK);
      if ((await stat(candidate)).isFile()) return candidate;
    } catch {
      // The next directory may have it.
    }
  }
  return undefined;
}

/** The same at once, for tools of the system while the agent starts. */
export function hasExecutable(name: string, path: string | undefined): boolean {
  return candidates(name, path).some((candidate) => {
    try {
      accessSync(candidate, constants.X_OK);
      return statSync(candidate).isFile();
    } catch {
      return false;
    }
  });
}
