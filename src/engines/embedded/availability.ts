import { execFile } from 'node:child_process';
import { closeSync, existsSync, openSync, readdirSync, readSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

/** Whether the embedded engine can run on this machine, and if not, why. */
export type EmbeddedAvailability =
  { readonly available: true } | { readonly available: false; readonly reason: string };

/** What decides which binary is needed; given in tests. */
export interface Platform {
  readonly os: string;
  readonly cpu: string;
  /** The C library is musl, for which no binary exists. */
  readonly musl: boolean;
}

/** Packages with a CPU (or, on Macs, Metal) build of llama.cpp by platform. */
const BINARY_PACKAGES: Readonly<Record<string, string>> = {
  'linux-x64': 'linux-x64',
  'linux-arm64': 'linux-arm64',
  'linux-arm': 'linux-armv7l',
  'darwin-arm64': 'mac-arm64-metal',
  'darwin-x64': 'mac-x64',
  'win32-x64': 'win-x64',
  'win32-arm64': 'win-arm64',
};

/** A binding that cannot be opened within this time is taken as broken, milliseconds. */
const OPEN_DEADLINE_MS = 15_000;

/** How much of a program is looked at for its loader's name. */
const ELF_START_BYTES = 4096;

const ADDON_FILE = 'llama-addon.node';

/**
 * Tells whether node-llama-cpp's binary for this platform is installed and can be opened, without loading a model.
 * The binary is opened in a child process (about 0.1 s): a wrong C library or processor would take the asking process down.
 */
export async function embeddedAvailable(
  platform: Platform = thisPlatform(),
  from = path.dirname(fileURLToPath(import.meta.url)),
): Promise<EmbeddedAvailability> {
  const key = `${platform.os}-${platform.cpu}`;
  const name = BINARY_PACKAGES[key];
  if (name === undefined) return no(`there is no llama.cpp binary for ${key}`);
  if (platform.musl) return no('the llama.cpp binaries need glibc; this system has musl');
  if (findPackage(from, 'node-llama-cpp') === undefined)
    return no('the package node-llama-cpp is not installed');
  const directory = findPackage(from, `@node-llama-cpp/${name}`);
  if (directory === undefined) return no(`the package @node-llama-cpp/${name} is not installed`);
  const addon = findAddon(path.join(directory, 'bins'));
  if (addon === undefined) return no(`the package @node-llama-cpp/${name} holds no binary`);
  const problem = await openInChild(addon);
  return problem === undefined ? { available: true } : no(`the llama.cpp binary does not load: ${problem}`);
}

function no(reason: string): EmbeddedAvailability {
  return { available: false, reason };
}

function thisPlatform(): Platform {
  return {
    os: process.platform,
    cpu: process.arch,
    musl: process.platform === 'linux' && startsWithMusl(process.execPath),
  };
}

/** An ELF program names its loader near its start; Node built for musl names musl's. */
function startsWithMusl(program: string): boolean {
  const file = openSync(program, 'r');
  try {
    const start = Buffer.alloc(ELF_START_BYTES);
    readSync(file, start, 0, start.length, 0);
    return start.includes('/ld-musl-');
  } finally {
    closeSync(file);
  }
}

/** Looks the package up as Node would, by folders: its `exports` do not let its files be resolved by name. */
function findPackage(from: string, name: string): string | undefined {
  for (let directory = from; ; directory = path.dirname(directory)) {
    const candidate = path.join(directory, 'node_modules', name);
    if (existsSync(path.join(candidate, 'package.json'))) return candidate;
    if (path.dirname(directory) === directory) return undefined;
  }
}

function findAddon(binsDirectory: string): string | undefined {
  if (!existsSync(binsDirectory)) return undefined;
  const candidates = readdirSync(binsDirectory).map((entry) => path.join(binsDirectory, entry, ADDON_FILE));
  return candidates.find((file) => existsSync(file));
}

/** What went wrong when a child process opened the file; undefined when nothing did. */
function openInChild(addon: string): Promise<string | undefined> {
  const script = 'process.dlopen({ exports: {} }, process.argv[1])';
  return new Promise((resolve) => {
    execFile(
      process.execPath,
      ['-e', script, addon],
      { timeout: OPEN_DEADLINE_MS },
      (error, _stdout, stderr) => {
        if (error === null) return resolve(undefined);
        const line = stderr.split('\n').find((text) => text.includes('Error'));
        resolve(
          line?.trim() ?? `the process that opened it ended with ${error.signal ?? error.code ?? 'an error'}`,
        );
      },
    );
  });
}
