/* oxlint-disable no-console -- a program for people */
/** `npm run bench:overload [-- --times 3 --seconds 15 --slots 16]`: what is left of a fleet that is asked for too much. */
import { fork } from 'node:child_process';
import os from 'node:os';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { quantile, table, type Line } from '../scale/report.js';
import { Fleet, type EngineStats, type FleetPlan } from './fleet.js';
import { runLoad, type LoadPlan, type LoadTell, type Seen } from './load.js';
import { AdminWatch, msUntilEmpty, StarvationWatch } from './watch.js';

const GOODPUT_BAR = 0.9;
const REFUSAL_BAR_MS = 50;
const ADMIN_BAR_MS = 250;
const LEAVE_BAR_MS = 1_000;
/** A told wait is sensible between these shares of the wait that the measured goodput makes. */
const TOLD_LEAST = 0.5;
const TOLD_MOST = 2;

const MAX_TOKENS = 20;
/** Until the queue is full and the rates are learned; not counted. */
const SETTLE_SECONDS = 4;

const { values } = parseArgs({
  options: {
    times: { type: 'string', default: '3' },
    seconds: { type: 'string', default: '15' },
    slots: { type: 'string', default: '16' },
    engines: { type: 'string', default: '4' },
    queue: { type: 'string', default: '200' },
    load: { type: 'string' },
  },
});

interface Step {
  readonly seen: readonly Seen[];
  readonly seconds: number;
  readonly watch: AdminWatch;
  readonly engines: readonly EngineStats[];
  readonly emptiedMs: { readonly queue: number; readonly all: number } | undefined;
  readonly leftAtOnce: number;
  /** Share of the time in which the server ran, and in which it was kept from running by others. */
  readonly ran: number;
  readonly keptWaiting: number;
  readonly starved: Starvation;
}

/** Who was kept from running when; times are those of the load. */
interface Starvation {
  readonly server: (fromMs: number, toMs: number) => number;
  readonly load: (fromMs: number, toMs: number) => number;
}

async function measure(): Promise<void> {
  const plan: FleetPlan = {
    engines: Number(values.engines),
    slots: Number(values.slots),
    ttftMs: 100,
    tpotMs: 25,
    queueMax: Number(values.queue),
  };
  const slots = plan.engines * plan.slots;
  const capacity = slots / ((plan.ttftMs + plan.tpotMs * (MAX_TOKENS - 1)) / 1_000);
  const cpu = os.cpus()[0]?.model ?? 'unknown processor';
  console.log(
    `Node ${process.versions.node}, ${os.cpus().length} × ${cpu}, load average at start ${os.loadavg()[0]?.toFixed(1)}\n` +
      `${plan.engines} engines × ${plan.slots} at once, ${capacity.toFixed(0)} answers/s at most; queue of ${plan.queueMax}\n`,
  );
  const fleet = new Fleet(plan);
  try {
    await fleet.start();
    const times = Number(values.times);
    // As many clients as there is room for and a few in the queue: nobody could answer more than that.
    const full = await run(fleet, { clients: Math.ceil(slots * 1.25) });
    const once = await run(fleet, { ratePerSecond: capacity * 0.9 });
    const over = await run(fleet, {
      ratePerSecond: capacity * times,
      impatientShare: 0.1,
      patienceMs: 500,
      leaveAtEnd: true,
    });
    console.log(stepTable({ 'closed loop': full, '0.9 × capacity': once, [`${times} × capacity`]: over }));
    const lines = judge(plan, full, over, times);
    console.log(`\n${table(lines)}`);
    console.log(`\n${slowRefusals(over)}`);
    process.exitCode = lines.every(({ met }) => met) ? 0 : 1;
  } finally {
    await fleet.stop();
  }
}

async function run(fleet: Fleet, part: Partial<LoadPlan>): Promise<Step> {
  await fleet.reset();
  const seconds = Number(values.seconds);
  const plan: LoadPlan = {
    url: fleet.client,
    seconds: seconds + SETTLE_SECONDS,
    maxTokens: MAX_TOKENS,
    impatientShare: 0,
    patienceMs: 60_000,
    leaveAtEnd: false,
    ...part,
  };
  const before = fleet.serverSeconds();
  const fromMs = performance.now();
  const child = fork(fileURLToPath(import.meta.url), ['--load', JSON.stringify(plan)]);
  const watch = new AdminWatch(fleet.admin);
  const [server, load] = [new StarvationWatch(fleet.serverPid), new StarvationWatch(child.pid)];
  let startWallMs = 0;
  let emptied: Promise<Step['emptiedMs']> = Promise.resolve(undefined);
  let leftAtOnce = 0;
  const seen = await new Promise<readonly Seen[]>((resolve, reject) => {
    child.once('close', (code) => reject(new Error(`the load ended with ${code}`)));
    child.on('message', (message: LoadTell) => {
      if (message.kind === 'done') {
        startWallMs = message.startWallMs;
        return resolve(message.seen);
      }
      leftAtOnce = message.open;
      emptied = msUntilEmpty(fleet.admin, 20_000);
    });
  });
  await watch.stop();
  server.stop();
  load.stop();
  const starved: Starvation = {
    server: (fromMs, toMs) => server.between(startWallMs + fromMs, startWallMs + toMs),
    load: (fromMs, toMs) => load.between(startWallMs + fromMs, startWallMs + toMs),
  };
  const after = fleet.serverSeconds();
  const elapsed = (performance.now() - fromMs) / 1_000;
  const [ran, keptWaiting] = [(after.ran - before.ran) / elapsed, (after.waited - before.waited) / elapsed];
  const emptiedMs = await emptied;
  return {
    seen,
    seconds,
    watch,
    engines: await fleet.stats(),
    emptiedMs,
    leftAtOnce,
    ran,
    keptWaiting,
    starved,
  };
}

/** Requests that ended while the load was steady. */
function steady({ seen, seconds }: Step): Seen[] {
  const [from, to] = [SETTLE_SECONDS * 1_000, (SETTLE_SECONDS + seconds) * 1_000];
  return seen.filter(({ endedMs }) => endedMs >= from && endedMs < to);
}

const percent = (of: number): string => `${(100 * of).toFixed(1)} %`;

const goodput = (step: Step): number => steady(step).filter(isOk).length / step.seconds;
const isOk = ({ result }: Seen): boolean => result === 'ok';
const isRefusal = ({ result }: Seen): boolean => /^(429|503) /.test(result);
const tookMs = ({ sentMs, endedMs }: Seen): number => endedMs - sentMs;

function stepTable(steps: Readonly<Record<string, Step>>): string {
  const rows = Object.entries(steps).map(([name, step]) => {
    const ended = steady(step);
    const refused = ended.filter(isRefusal);
    const waits = ended.filter(isOk).map(({ sentMs, firstTokenMs }) => (firstTokenMs ?? Number.NaN) - sentMs);
    const others = ended.filter((one) => !isOk(one) && !isRefusal(one) && one.result !== 'left');
    return [
      name,
      (ended.length / step.seconds).toFixed(0),
      goodput(step).toFixed(1),
      (refused.length / step.seconds).toFixed(1),
      String(others.length),
      ms(waits, 0.5),
      ms(waits, 0.99),
      `${ms(refused.map(tookMs), 0.5)} / ${ms(refused.map(tookMs), 0.9)} / ${ms(refused.map(tookMs), 0.99)}`,
      `${ms(step.watch.livezMs, 0.5)} / ${ms(step.watch.livezMs, 0.99)}`,
      `${ms(step.watch.metricsMs, 0.5)} / ${ms(step.watch.metricsMs, 0.99)}`,
      ms(
        step.seen.map(({ lateMs }) => lateMs),
        0.99,
      ),
      `${percent(step.ran)} / ${percent(step.keptWaiting)}`,
    ];
  });
  const head = [
    ...['', 'ended/s', 'answered/s', 'refused/s', 'other ends', 'first token p50 ms', 'p99'],
    ...[
      'refusal p50 / p90 / p99',
      '/livez p50 / p99',
      '/metrics p50 / p99',
      'load itself late p99',
      'server ran / was kept waiting',
    ],
  ];
  return [head, head.map(() => '---'), ...rows].map((row) => `| ${row.join(' | ')} |`).join('\n');
}

const ms = (values: readonly number[], share: number): string =>
  values.length === 0 ? '–' : quantile(values, share).toFixed(1);

function judge(plan: FleetPlan, full: Step, over: Step, times: number): Line[] {
  const share = goodput(over) / goodput(full);
  const ended = steady(over);
  const refused = ended.filter(isRefusal);
  const refusalMs = quantile(refused.map(tookMs), 0.99);
  const told = refused.map(({ retryAfterSeconds }) => retryAfterSeconds ?? Number.NaN);
  const expected = plan.queueMax / goodput(over);
  const toldRight = told.filter(
    (seconds) =>
      seconds >= Math.max(1, Math.floor(expected * TOLD_LEAST)) && seconds <= Math.ceil(expected * TOLD_MOST),
  ).length;
  const most = Math.max(...[...full.engines, ...over.engines].map(({ maxRunning }) => maxRunning));
  const strange = over.seen.filter((one) => !isOk(one) && !isRefusal(one) && one.result !== 'left');
  const livezMs = quantile(over.watch.livezMs, 0.99);
  const metricsMs = quantile(over.watch.metricsMs, 0.99);
  const { queue: queueMs, all: allMs } = over.emptiedMs ?? { queue: Number.NaN, all: Number.NaN };
  return [
    line(
      `answers at ${times} × capacity, of the most there can be`,
      percent(share),
      '≥ 90 %',
      share >= GOODPUT_BAR,
    ),
    line(
      `${refused.length} refusals answered, p99`,
      `${refusalMs.toFixed(1)} ms`,
      `< ${REFUSAL_BAR_MS} ms`,
      refusalMs < REFUSAL_BAR_MS,
    ),
    line(
      'Retry-After told',
      `${Math.min(...told)} to ${Math.max(...told)} s, the queue's wait is ${expected.toFixed(1)} s`,
      'all half to double of it',
      told.length > 0 && toldRight === told.length,
    ),
    line('other ends than answer, refusal, left', String(strange.length), '0', strange.length === 0),
    line('most requests at one engine', String(most), `≤ ${plan.slots}`, most <= plan.slots),
    line(
      'longest queue',
      String(Math.max(...over.watch.depths)),
      `≤ ${plan.queueMax}`,
      Math.max(...over.watch.depths) <= plan.queueMax,
    ),
    line(
      '`/livez` meanwhile, p99',
      `${livezMs.toFixed(1)} ms`,
      `< ${ADMIN_BAR_MS} ms`,
      livezMs < ADMIN_BAR_MS,
    ),
    line(
      '`/metrics` meanwhile, p99',
      `${metricsMs.toFixed(1)} ms`,
      `< ${ADMIN_BAR_MS} ms`,
      metricsMs < ADMIN_BAR_MS,
    ),
    line(
      `${over.leftAtOnce} clients leave at once: queue empty / nothing in flight after`,
      `${queueMs.toFixed(0)} / ${allMs.toFixed(0)} ms`,
      `< ${LEAVE_BAR_MS} ms`,
      allMs < LEAVE_BAR_MS,
    ),
  ];
}

/** Where the time of refusals went that took longer than the bar: nowhere, while a process waited for a processor. */
function slowRefusals({ seen, starved }: Step): string {
  const slow = seen.filter((one) => isRefusal(one) && tookMs(one) > REFUSAL_BAR_MS);
  if (slow.length === 0) return `no refusal took longer than ${REFUSAL_BAR_MS} ms`;
  const sum = (of: (one: Seen) => number) => slow.reduce((total, one) => total + of(one), 0);
  const share = (who: Starvation['server']) =>
    percent(sum(({ sentMs, endedMs }) => who(sentMs, endedMs)) / sum(tookMs));
  return (
    `${slow.length} refusals took longer than ${REFUSAL_BAR_MS} ms; in that time the server was kept from running ` +
    `${share(starved.server)} and the load generator ${share(starved.load)}`
  );
}

function line(what: string, measured: string, bar: string, met: boolean): Line {
  return { what, measured, bar, met };
}

if (values.load === undefined) await measure();
else await runLoad(JSON.parse(values.load) as LoadPlan);
