/** Runs programs of this project's toolbox and takes them along when interrupted. */
import { spawn } from 'node:child_process';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

export const ROOT = resolve(dirname(fileURLToPath(import.meta.url)), '..', '..');

/** Thrown when a program ends otherwise than well. */
export class ProgramFailed extends Error {
  /** @param {string} what @param {number} exitCode */
  constructor(what, exitCode) {
    super(`${what} failed with exit code ${exitCode}`);
    this.exitCode = exitCode;
  }
}

/**
 * Runs a program with its output on ours. Rejects when it fails; ends this process when a signal ended it.
 * @param {string} command
 * @param {readonly string[]} args
 * @param {{ env?: Record<string, string>, what?: string, stdout?: 'inherit' | 'ignore' }} [options]
 * @returns {Promise<void>}
 */
export function run(command, args, options = {}) {
  const child = spawn(command, args, {
    cwd: ROOT,
    stdio: ['ignore', options.stdout ?? 'inherit', 'inherit'],
    env: { ...process.env, ...options.env },
  });
  // A terminal's Ctrl-C reaches the child by itself; a signal sent to this process alone does not.
  const forward = (signal) => child.kill(signal);
  const signals = ['SIGINT', 'SIGTERM'];
  for (const signal of signals) process.on(signal, forward);
  return new Promise((fulfil, reject) => {
    child.on('error', (error) => reject(new Error(`${command} cannot be started`, { cause: error })));
    child.on('close', (code, signal) => {
      for (const name of signals) process.off(name, forward);
      if (signal === 'SIGINT' || code === 130) process.exit(130);
      if (signal !== null) process.exit(143);
      if (code === 0) fulfil();
      else reject(new ProgramFailed(options.what ?? command, code ?? 1));
    });
  });
}

/**
 * Runs the script of an installed package with this very Node.
 * @param {string} script path below node_modules
 * @param {readonly string[]} args
 * @param {Parameters<typeof run>[2]} [options]
 */
export function runPackage(script, args, options) {
  return run(process.execPath, [join(ROOT, 'node_modules', script), ...args], {
    what: [script.split('/')[0], ...args].join(' '),
    ...options,
  });
}

/** Ends with a message when this Node is too old to run anything here. */
export function requireNode() {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
  if (major > 20 || (major === 20 && minor >= 19)) return;
  console.error(`llmgw needs Node.js 20.19 or newer; this is ${process.versions.node}`);
  process.exit(1);
}
