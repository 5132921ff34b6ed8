import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { embeddedAvailable } from './availability.js';

const linux = { os: 'linux', cpu: 'x64', musl: false };
let directory: string;

beforeAll(async () => {
  directory = await mkdtemp(path.join(tmpdir(), 'llmgw-availability-'));
});
afterAll(() => rm(directory, { recursive: true }));

async function install(name: string, files: Record<string, string> = {}): Promise<void> {
  const folder = path.join(directory, 'node_modules', name);
  for (const [file, text] of Object.entries({ 'package.json': '{}', ...files })) {
    await mkdir(path.dirname(path.join(folder, file)), { recursive: true });
    await writeFile(path.join(folder, file), text);
  }
}

describe('embeddedAvailable', () => {
  it('tells which thing is missing, one after another', async () => {
    const reason = async (platform = linux) => {
      const result = await embeddedAvailable(platform, directory);
      return result.available ? undefined : result.reason;
    };
    expect(await reason({ os: 'sunos', cpu: 'x64', musl: false })).toContain(
      'no llama.cpp binary for sunos-x64',
    );
    expect(await reason({ ...linux, musl: true })).toContain('musl');
    expect(await reason()).toBe('the package node-llama-cpp is not installed');
    await install('node-llama-cpp');
    expect(await reason()).toBe('the package @node-llama-cpp/linux-x64 is not installed');
    await install('@node-llama-cpp/linux-x64');
    expect(await reason()).toBe('the package @node-llama-cpp/linux-x64 holds no binary');
    await install('@node-llama-cpp/linux-x64', { 'bins/linux-x64/llama-addon.node': 'not a library' });
    expect(await reason()).toContain('does not load');
  });

  // Elsewhere the binary may be missing for good reasons; here it is a dependency, and "not available" would skip other specs.
  it.runIf(process.platform === 'linux' && process.arch === 'x64')('finds the installed binary', async () => {
    expect(await embeddedAvailable()).toEqual({ available: true });
  });
});
