// Processes and what the kernel says about them.
import { execFileSync, spawn } from 'node:child_process';
import { readFileSync, readdirSync } from 'node:fs';
import net from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

const children = [];

const tryTo = (read, otherwise) => {
  try {
    return read();
  } catch {
    return otherwise;
  }
};

/** Whether a program can be found. */
export const exists = (program) =>
  tryTo(() => execFileSync('sh', ['-c', `command -v ${program}`]).length > 0, false);

const pinned = exists('taskset');

/** Starts a program on one core; it ends with this process. */
export function start(command, core, options = {}) {
  const [program, ...rest] = pinned ? ['taskset', '-c', String(core), ...command] : command;
  const child = spawn(program, rest, { stdio: ['ignore', 'ignore', 'ignore'], ...options });
  children.push(child);
  return child;
}

process.on('exit', () => {
  for (const child of children) tryTo(() => child.kill('SIGKILL'), false);
});
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => process.exit(130));

/** Ends what was started, and waits for it. */
export async function stop(child) {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const gone = new Promise((resolve) => child.once('exit', resolve));
  child.kill('SIGTERM');
  const late = setTimeout(() => child.kill('SIGKILL'), 3_000);
  await gone;
  clearTimeout(late);
}

const accepts = (port) =>
  new Promise((resolve) => {
    const socket = net.connect(port, '127.0.0.1');
    socket.once('connect', () => resolve(true)).once('error', () => resolve(false));
    socket.once('connect', () => socket.destroy());
  });

/** Waits until something listens on the port. */
export async function listening(port, name) {
  for (let i = 0; i < 300; i++) {
    if (await accepts(port)) return;
    await sleep(50);
  }
  throw new Error(`${name} does not listen on ${port}`);
}

/** A process and all below it. */
function family(pid) {
  const below = tryTo(() => readdirSync(`/proc/${pid}/task`), []).flatMap((task) =>
    tryTo(() => readFileSync(`/proc/${pid}/task/${task}/children`, 'utf8'), '')
      .split(' ')
      .filter((child) => child !== ''),
  );
  return [pid, ...below.flatMap((child) => family(Number(child)))];
}

/** CPU time used so far by a process and all below it, microseconds. */
export function cpuUs(pid) {
  let ns = 0;
  for (const member of family(pid)) {
    for (const task of tryTo(() => readdirSync(`/proc/${member}/task`), [])) {
      ns += Number(
        tryTo(() => readFileSync(`/proc/${member}/task/${task}/schedstat`, 'utf8'), '0').split(' ')[0],
      );
    }
  }
  return ns / 1_000;
}

/** Memory of a process and all below it, their shares of what is shared included, KiB. */
export function memoryKiB(pid) {
  return family(pid)
    .map((member) => tryTo(() => readFileSync(`/proc/${member}/smaps_rollup`, 'utf8'), ''))
    .reduce((sum, text) => sum + Number(/Pss:\s+(\d+)/.exec(text)?.[1] ?? 0), 0);
}

/** Runs the load generator and gives what it printed. */
export async function load(program, target, options, onOpen) {
  const headers = (target.headers ?? []).flatMap((header) => ['-H', header]);
  const child = start([program, '-p', String(target.port), ...headers, ...options], 1, {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  child.stderr.once('data', (text) => onOpen?.(Number(text)));
  let printed = '';
  for await (const piece of child.stdout) printed += piece;
  return JSON.parse(printed);
}

export const median = (values) => {
  const sorted = values.filter(Number.isFinite).sort((a, b) => a - b);
  return sorted.length === 0 ? Number.NaN : sorted[Math.floor(sorted.length / 2)];
};
