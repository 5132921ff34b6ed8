/** Kills a writer again and again, at moments drawn from a seed, and looks each time whether something acknowledged is gone. */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { seededRandom } from '../../src/shared/random.js';
import { inspect } from './writer.js';

/** Longest time to the kill, ms; a write takes about one. */
const LIFE_MAX_MS = 30;
/** Share of the writers that may be hit while they open the store; the others have written at least once. */
const EARLY_SHARE = 0.2;
/** Writers started ahead: loading node takes longer than a writer lives. */
const AHEAD = 2;

export interface KillRun {
  /** The compiled `main.js` of this folder. */
  readonly entry: string;
  readonly stateDir: string;
  readonly kills: number;
  readonly seed: number;
}

export interface KillResult {
  readonly kills: number;
  readonly acknowledged: number;
  /** Kills before the first write of a writer: they hit the opening, or the recovery of the one before. */
  readonly early: number;
  readonly fault?: string;
}

/** Ends at the first fault. */
export async function killWriters({ entry, stateDir, kills, seed }: KillRun): Promise<KillResult> {
  const random = seededRandom(seed);
  const ahead: ChildProcess[] = [];
  let last = -1;
  let early = 0;
  try {
    for (let kill = 1; kill <= kills; kill += 1) {
      while (ahead.length < AHEAD) ahead.push(startWriter(entry, stateDir));
      const writer = ahead.shift();
      if (writer === undefined) break;
      const written = await liveAndDie(writer, random() < EARLY_SHARE, random() * LIFE_MAX_MS);
      if (written === undefined) early += 1;
      const found = inspect(stateDir, written ?? last);
      if (found.fault !== undefined)
        return { kills: kill, acknowledged: last + 1, early, fault: `kill ${kill}: ${found.fault}` };
      last = found.last;
    }
    return { kills, acknowledged: last + 1, early };
  } finally {
    for (const writer of ahead) writer.kill('SIGKILL');
  }
}

function startWriter(entry: string, stateDir: string): ChildProcess {
  return spawn(process.execPath, [entry, '--writer', stateDir], { stdio: ['pipe', 'pipe', 'inherit'] });
}

/**
 * Lets a writer go and kills it `lifeMs` after that (`early`) or after its first write. Gives the last number it said;
 * undefined when it said none.
 */
async function liveAndDie(writer: ChildProcess, early: boolean, lifeMs: number): Promise<number | undefined> {
  let output = '';
  writer.stdout?.setEncoding('utf8').on('data', (text: string) => (output += text));
  const ended = once(writer, 'close');
  await said(writer, /^ready\n/, () => output);
  writer.stdin?.write('go\n');
  if (!early) await said(writer, /^\d+\n/m, () => output);
  await sleep(lifeMs);
  writer.kill('SIGKILL');
  await ended;
  const numbers = output.slice(0, output.lastIndexOf('\n') + 1).match(/^\d+$/gm);
  return numbers === null ? undefined : Number(numbers.at(-1));
}

async function said(writer: ChildProcess, what: RegExp, output: () => string): Promise<void> {
  while (!what.test(output())) {
    if (writer.exitCode !== null) throw new Error(`a writer ended by itself with ${writer.exitCode}`);
    await sleep(1);
  }
}
