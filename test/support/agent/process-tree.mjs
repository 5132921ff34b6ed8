/* oxlint-disable no-console */
// An engine as engines are: a wrapper that starts a launcher that starts a worker, and the worker ignores TERM.
// usage: process-tree.mjs [--polite] [--depth N]   prints one line "pid DEPTH PID" per process
import { spawn } from 'node:child_process';

const polite = process.argv.includes('--polite');
const depth = Number(process.argv[process.argv.indexOf('--depth') + 1] || 2);
// Before the line that says it is there: whoever reads it may send the signal at once.
if (!polite && depth === 0) process.on('SIGTERM', () => console.log('ignoring SIGTERM'));
console.log(`pid ${depth} ${process.pid}`);
if (depth > 0) {
  const args = [process.argv[1], '--depth', String(depth - 1), ...(polite ? ['--polite'] : [])];
  spawn(process.execPath, args, { stdio: 'inherit' });
}
setInterval(() => {}, 1000);
