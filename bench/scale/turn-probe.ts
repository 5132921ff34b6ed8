/**
 * Loaded into the server before anything of its own: tells a stall of the event loop that is work of ours from one that is a
 * process waiting for a processor. A timer looks every few milliseconds; between two looks the kernel says how long the main
 * thread ran and how long it was ready to run and did not. Linux only.
 */
import { readFileSync, writeFileSync } from 'node:fs';

/** For `--import`. */
export const TURN_PROBE = import.meta.url;
/** Names the file the probe writes to; without it the probe does nothing. */
export const TURN_PROBE_FILE = 'BENCH_TURN_PROBE';

const LOOK_EVERY_MS = 10;
const NS_PER_MS = 1e6;

/** One time between two looks, ms. */
export interface Turn {
  readonly wallMs: number;
  /** CPU time of the main thread: an upper bound for the longest turn in it. */
  readonly cpuMs: number;
  /** Ready to run, and not running. */
  readonly starvedMs: number;
}

export interface Turns {
  readonly longest: Turn;
  /** The one with the most work in it. */
  readonly busiest: Turn;
}

const NONE: Turn = { wallMs: 0, cpuMs: 0, starvedMs: 0 };

function watch(file: string): void {
  const clocks = (): readonly number[] =>
    readFileSync('/proc/self/schedstat', 'utf8')
      .split(' ')
      .map((ns) => Number(ns) / NS_PER_MS);
  let turns: Turns = { longest: NONE, busiest: NONE };
  let beforeMs = performance.now();
  let [ranMs = 0, waitedMs = 0] = clocks();
  setInterval(() => {
    const nowMs = performance.now();
    const [ran = 0, waited = 0] = clocks();
    const turn = { wallMs: nowMs - beforeMs, cpuMs: ran - ranMs, starvedMs: waited - waitedMs };
    [beforeMs, ranMs, waitedMs] = [nowMs, ran, waited];
    const { longest, busiest } = turns;
    if (turn.wallMs <= longest.wallMs && turn.cpuMs <= busiest.cpuMs) return;
    turns = {
      longest: turn.wallMs > longest.wallMs ? turn : longest,
      busiest: turn.cpuMs > busiest.cpuMs ? turn : busiest,
    };
    writeFileSync(file, JSON.stringify(turns));
  }, LOOK_EVERY_MS).unref();
  // From here on: what came before was starting up.
  process.on('SIGUSR2', () => (turns = { longest: NONE, busiest: NONE }));
}

const file = process.env[TURN_PROBE_FILE];
if (file !== undefined) watch(file);
