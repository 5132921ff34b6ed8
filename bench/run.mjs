#!/usr/bin/env node
// Compares llmgw with nginx and a peer under the same load, side by side in one run. See README.md.
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, rmSync, writeFileSync, existsSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import * as prettier from 'prettier';
import { disconnects } from './disconnect.mjs';
import { selfCheck } from './self-check.mjs';
import { cpuUs, listening, load, median, memoryKiB, start, stop } from './measure.mjs';
import { ENGINE_PORT, keyedLlmgw, scratch, targets } from './targets.mjs';

const here = path.dirname(fileURLToPath(import.meta.url));
const { values: options } = parseArgs({
  options: {
    scenarios: { type: 'string', default: 'check,json,keys,rate,fast,paced,hold,bodies,disconnect' },
    rounds: { type: 'string', default: '3' },
    seconds: { type: 'string', default: '10' },
    streams: { type: 'string', default: '2000' },
    write: { type: 'boolean', default: false },
  },
});
const rounds = Number(options.rounds);
const wanted = new Set(options.scenarios.split(','));

/** Four seconds each; a slow target or a busy machine gets that many to do what warms it up. */
const WARM_UP_TRIES = 5;

/** Loads under which CPU per unit of work is compared; `warmUp` is counted in the same units. */
const SCENARIOS = {
  json: {
    title: 'Whole answers of 1 KiB, 64 clients',
    load: ['-c', '64'],
    unit: 'request',
    warmUp: 300_000,
  },
  fast: {
    title: 'Streams of 128 events at full speed, 64 clients',
    load: ['-c', '64', '-s', 'events=128 size=200 pause=0'],
    unit: 'stream',
    warmUp: 50_000,
  },
  paced: {
    title: '250 streams, an event every 20 ms',
    load: ['-c', '250', '-g', '2', '-s', 'events=100 size=200 pause=20'],
    unit: 'event',
    // Paced work is little work: an optimising compiler is still busy with it after ten seconds.
    warmUp: 200_000,
  },
};

/** Their bar is `keys`: the same answers with and without a key that has limits. */
const KEYS_SCENARIO = { ...SCENARIOS.json, title: 'Whole answers of 1 KiB, 64 clients, with an API key' };

const lines = [];
const say = (line = '') => {
  lines.push(line);
  console.log(line);
};
/** What llmgw is held to; `measured` stays undefined where the run did not measure it. */
const BARS = {
  json: { what: 'Whole answers: CPU as a multiple of nginx', most: 5 },
  peer: { what: "Whole answers: the peer's CPU as a multiple of llmgw's", least: 20 },
  paced: { what: 'Paced streams: CPU per event as a multiple of nginx', most: 1.6 },
  fast: { what: 'Full-speed streams: CPU as a multiple of nginx', most: 1.6 },
  keys: { what: 'Whole answers with an API key: CPU as a multiple of without', most: 1.1 },
  rate: { what: 'Latency added at the median, 150 requests/s, ms', most: 1 },
  memory: { what: 'Memory per open stream, KiB', most: 60 },
  streams: { what: `Streams of ${options.streams} that did not begin`, most: 0 },
  errors: { what: 'Streams with events or bytes lost, doubled or out of order', most: 0 },
  disconnect: { what: "From a client leaving to the engine's connection closed, p99 ms", most: 100 },
  bodies: { what: 'Longest delay of an event while huge bodies are sent, ms', most: 200 },
  check: { what: 'Planted faults that the load generator did not see', most: 0 },
};
const shown = (value, digits = 1) => (Number.isFinite(value) ? value.toFixed(digits) : '–');

function compile(name) {
  const program = path.join(scratch, name);
  execFileSync('cc', ['-O2', '-o', program, path.join(here, `${name}.c`)], { stdio: 'inherit' });
  return program;
}

async function launch(target) {
  target.process = start(target.command, 0, { cwd: target.cwd, env: { ...process.env, ...target.env } });
  await listening(target.port, target.name);
}

async function compare(name, scenario, list) {
  const of = (result) => (scenario.unit === 'event' ? result.allEvents : result.allDone);
  const measured = new Map(list.map((target) => [target.name, []]));
  const unable = [];
  // Compilers of running programs need work before they know what to optimise.
  for (const target of list) {
    for (let work = 0, tries = 0; work < scenario.warmUp && tries < WARM_UP_TRIES; tries++) {
      const result = await load(tools.load, target, [...scenario.load, '-d', '4', '-w', '0']);
      work += of(result);
      if (work > 0) continue;
      unable.push({ target, why: result.firstError });
      break;
    }
  }
  for (const { target } of unable) list.splice(list.indexOf(target), 1);
  for (let round = 0; round < rounds; round++) {
    for (let i = 0; i < list.length; i++) {
      const target = list[(i + round) % list.length];
      const before = cpuUs(target.process.pid);
      const result = await load(tools.load, target, [...scenario.load, '-d', options.seconds, '-w', '0.5']);
      const usPerUnit = (cpuUs(target.process.pid) - before) / of(result);
      measured.get(target.name).push({ ...result, usPerUnit });
    }
  }
  say(`\n## ${scenario.title}\n`);
  for (const { target, why } of unable)
    say(`${target.name} is left out from here on: it answers none of this (${why}).\n`);
  say(
    `| | CPU µs per ${scenario.unit} | × ${list[0].name} | ${scenario.unit}s/s | p50 ms | p99 ms | errors |`,
  );
  say('| --- | --: | --: | --: | --: | --: | --: |');
  for (const target of list) {
    const results = measured.get(target.name);
    const base = measured.get(list[0].name);
    const ratio = median(results.map((result, i) => result.usPerUnit / base[i].usPerUnit));
    const delay = scenario.unit === 'event' ? 'eventDelayUs' : 'latencyUs';
    const quantile = (name) => median(results.map((result) => (result[delay]?.[name] ?? Number.NaN) / 1_000));
    const perSecond = median(results.map((r) => (scenario.unit === 'event' ? r.events : r.done) / r.seconds));
    const errors = results.reduce((sum, result) => sum + result.errors, 0);
    const why = results.find((result) => result.errors > 0)?.firstError;
    say(
      `| ${target.name} | ${shown(median(results.map((result) => result.usPerUnit)))} | ${shown(ratio, 2)} | ` +
        `${shown(perSecond, 0)} | ${shown(quantile('p50'), 2)} | ${shown(quantile('p99'), 2)} | ${errors}${why ? ` ${why}` : ''} |`,
    );
  }
  const ratioOf = (above, below) => {
    const [a, b] = [measured.get(above), measured.get(below)];
    return a && b && median(a.map((result, i) => result.usPerUnit / b[i].usPerUnit));
  };
  const [first, second] = name === 'keys' ? [list[1].name, list[0].name] : ['llmgw', 'nginx'];
  BARS[name].measured = ratioOf(first, second);
  if (name === 'json') BARS.peer.measured = ratioOf('portkey', 'llmgw');
}

async function addedLatency(list) {
  say('\n## Latency added at 150 requests a second\n');
  say('| | p50 ms | p99 ms | added p50 ms |');
  say('| --- | --: | --: | --: |');
  const all = [{ name: 'direct', port: ENGINE_PORT }, ...list];
  const p50 = new Map(all.map((target) => [target.name, []]));
  const p99 = new Map(all.map((target) => [target.name, []]));
  for (let round = 0; round < rounds; round++) {
    for (let i = 0; i < all.length; i++) {
      const target = all[(i + round) % all.length];
      const result = await load(tools.load, target, [
        '-c',
        '64',
        '-r',
        '150',
        '-d',
        options.seconds,
        '-w',
        '0.5',
      ]);
      p50.get(target.name).push(result.latencyUs.p50 / 1_000);
      p99.get(target.name).push(result.latencyUs.p99 / 1_000);
    }
  }
  for (const { name } of all) {
    const added = median(p50.get(name).map((value, i) => value - p50.get('direct')[i]));
    if (name === 'llmgw') BARS.rate.measured = added;
    say(
      `| ${name} | ${shown(median(p50.get(name)), 2)} | ${shown(median(p99.get(name)), 2)} | ${shown(added, 2)} |`,
    );
  }
}

async function hold(list) {
  const count = Number(options.streams);
  say(`\n## ${count} streams held open, an event a second each\n`);
  say('| | idle MiB | with streams MiB | KiB per stream | streams | events checked | errors |');
  say('| --- | --: | --: | --: | --: | --: | --: |');
  for (const target of list) {
    // Anew, for what other scenarios left behind would be counted as idle.
    await stop(target.process);
    await launch(target);
    await load(tools.load, target, ['-c', '16', '-d', '2', '-w', '0', '-s', 'events=20 size=200 pause=5']);
    await sleep(500);
    const idle = memoryKiB(target.process.pid);
    let open = 0;
    let held = Number.NaN;
    const result = await load(
      tools.load,
      target,
      [
        '-c',
        String(count),
        '-g',
        '4',
        '-w',
        '8',
        '-d',
        '10',
        '-K',
        '-s',
        'events=100000 size=200 pause=1000',
      ],
      async (begun) => {
        open = begun;
        await sleep(8_000);
        held = memoryKiB(target.process.pid);
      },
    );
    const perStream = (held - idle) / open;
    if (target.name === 'llmgw') {
      BARS.memory.measured = perStream;
      BARS.streams.measured = count - open;
      BARS.errors.measured = result.errors;
    }
    say(
      `| ${target.name} | ${shown(idle / 1024, 0)} | ${shown(held / 1024, 0)} | ${shown(perStream)} | ${open} | ${result.allEvents} | ` +
        `${result.errors}${result.errors > 0 ? ` ${result.firstError}` : ''} |`,
    );
  }
}

/** 50 streams while somebody sends bodies of 20 MB, deep and long ones: how long the longest of their events was held up. */
async function hugeBodies(list) {
  say('\n## 50 streams with an event every 20 ms, while 21 huge bodies are sent\n');
  say('| | p50 ms | p99 ms | longest ms | bodies answered | errors |');
  say('| --- | --: | --: | --: | --: | --: |');
  for (const target of list) {
    const program = [process.execPath, path.join(here, 'bodies.mjs'), String(target.port)];
    const sender = start([...program, ...(target.headers ?? [])], 1, { stdio: ['pipe', 'pipe', 'inherit'] });
    let printed = '';
    sender.stdout.on('data', (piece) => (printed += piece));
    await once(sender.stdout, 'data');
    const streams = ['-c', '50', '-w', '1', '-d', '12', '-s', 'events=1000 size=200 pause=20'];
    const measuring = load(tools.load, target, streams);
    await sleep(2_000);
    sender.stdin.write('go');
    await once(sender, 'exit');
    const result = await measuring;
    const delay = (name) => result.eventDelayUs[name] / 1_000;
    const answers = printed.slice(printed.indexOf('{'));
    if (target.name === 'llmgw') BARS.bodies.measured = delay('max');
    say(
      `| ${target.name} | ${shown(delay('p50'), 2)} | ${shown(delay('p99'), 2)} | ${shown(delay('max'))} | ` +
        `${answers.replaceAll(/["{}]/g, '')} | ${result.errors}${result.errors > 0 ? ` ${result.firstError}` : ''} |`,
    );
  }
}

async function withKeys(list) {
  const keyed = keyedLlmgw();
  await launch(keyed);
  await keyed.makeKey();
  await compare('keys', KEYS_SCENARIO, [list.find((target) => target.name === 'llmgw'), keyed]);
  await stop(keyed.process);
}

async function leaving(gateway) {
  const took = await disconnects(gateway.port, ENGINE_PORT);
  const quantile = (q) => shown(took[Math.floor((took.length - 1) * q)], 1);
  say('\n## From a client leaving to the engine seeing its connection closed\n');
  say(`llmgw, ${took.length} clients, half in a stream, half before any answer: `);
  say(`p50 ${quantile(0.5)} ms, p99 ${quantile(0.99)} ms, longest ${quantile(1)} ms.`);
  BARS.disconnect.measured = Number(quantile(0.99));
}

async function check() {
  say('\n## What the load generator sees of faults planted in a stream\n');
  const results = await selfCheck(tools.load, ENGINE_PORT, ENGINE_PORT + 1);
  for (const { name, right, said } of results)
    say(`- ${name}: ${right ? 'right' : 'WRONG'}${said ? `, "${said}"` : ''}`);
  BARS.check.measured = results.filter(({ right }) => !right).length;
}

function judge() {
  say('\n## Bars\n');
  say('| | bar | measured | |');
  say('| --- | --: | --: | --- |');
  for (const { what, most, least, measured } of Object.values(BARS)) {
    const bar = most === undefined ? `≥ ${least}` : `≤ ${most}`;
    const known = Number.isFinite(measured);
    const met = most === undefined ? measured >= least : measured <= most;
    say(
      `| ${what} | ${bar} | ${known ? shown(measured, 2) : '–'} | ${known ? (met ? 'met' : '**not met**') : 'not measured'} |`,
    );
  }
}

const KEPT_MARK = '<!-- measured by other programs -->';
const tools = { engine: compile('engine'), load: compile('load') };
const list = targets();
let engine = start([tools.engine, String(ENGINE_PORT)], 1);
await listening(ENGINE_PORT, 'the fake engine');
for (const target of list) await launch(target);
say('# Benchmarks\n');
say(
  `\`npm run bench${process.argv
    .slice(2)
    .map((word) => ` ${word}`)
    .join('')}\`: Node ${process.versions.node}, ` +
    `${os.cpus().length} × ${os.cpus()[0]?.model ?? 'unknown processor'}, load average at start ${os.loadavg()[0].toFixed(1)}, ` +
    `${rounds} rounds of ${options.seconds} s. Compared: ${list.map((target) => target.name).join(', ')}.`,
);
say(
  '\nThe machine is shared: ratios and CPU time per unit mean something, rates and latencies are for orientation.',
);
if (wanted.has('check')) await check();
for (const [name, scenario] of Object.entries(SCENARIOS))
  if (wanted.has(name)) await compare(name, scenario, list);
if (wanted.has('keys')) await withKeys(list);
if (wanted.has('rate')) await addedLatency(list);
if (wanted.has('hold')) await hold(list);
if (wanted.has('bodies')) await hugeBodies(list);
if (wanted.has('disconnect')) {
  await stop(engine);
  const gateway = list.find((target) => target.name === 'llmgw');
  // Its connections to the fake engine are stale now; the next request finds that out, not the measurement.
  await sleep(500);
  await leaving(gateway);
  engine = undefined;
}
judge();
for (const target of list) await stop(target.process);
if (engine !== undefined) await stop(engine);
rmSync(scratch, { recursive: true, force: true });
if (options.write) {
  const file = path.join(here, '..', 'docs', 'benchmarks.md');
  mkdirSync(path.dirname(file), { recursive: true });
  // What stands behind the mark was measured by other programs and is kept.
  const [, kept = ''] = existsSync(file) ? readFileSync(file, 'utf8').split(KEPT_MARK) : [];
  const text = `${lines.join('\n')}\n${kept === '' ? '' : `\n${KEPT_MARK}${kept}`}`;
  const style = await prettier.resolveConfig(file);
  writeFileSync(file, await prettier.format(text, { ...style, filepath: file }));
  console.log(`\nwritten to ${path.relative(process.cwd(), file)} (${readFileSync(file).length} bytes)`);
}
process.exit(0);
