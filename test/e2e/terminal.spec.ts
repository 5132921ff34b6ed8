import { resolve } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { PlacementConfig } from '../../src/config/server-config.js';
import { displayWidth } from '../../src/cli/render/values.js';
import { ScriptedCluster, h100 } from '../scenario/scripted-cluster.js';
import { simModel } from '../support/control-server.js';
import { waitFor } from '../support/wait-for.js';
import { TerminalProcess, hasTerminals } from '../support/pty.js';

const MAIN = resolve(import.meta.dirname, '..', '..', 'dist', 'main.js');
const CTRL_C = '\u0003';
/** Back to the first column, and the rest of the line gone. */
const REDRAWN = '\r\u001b[K';
const COLOUR = '\u001b[3';

if (!hasTerminals) process.stderr.write('terminal.spec: skipped, for terminals need python3 with pty\n');

describe.skipIf(!hasTerminals || process.platform !== 'linux')('on a terminal', () => {
  let cluster: ScriptedCluster;
  const running: TerminalProcess[] = [];

  beforeAll(async () => {
    const placement = Object.assign(new PlacementConfig(), { strategy: 'spread' });
    const model = simModel('qwen', { replicas: 2, placement }, { gpus: 1, gpuMemory: 1 });
    const nodes = [
      { id: 'n1', gpus: [h100('GPU-11'), h100('GPU-12')] },
      { id: 'n2', gpus: [h100('GPU-21')] },
    ];
    // The command has the time of this machine.
    cluster = await ScriptedCluster.start({ models: [model] }, nodes, Date.now());
    await cluster.place();
    await cluster.ready();
  });
  afterEach(() => running.splice(0).forEach((one) => one.kill()));
  afterAll(() => cluster.dispose());

  function ctl(words: string, columns = 120, env: Record<string, string> = {}): TerminalProcess {
    const server = ['--server', cluster.server.server.addresses.admin];
    const one = new TerminalProcess(
      [process.execPath, MAIN, 'ctl', ...server, ...words.split(' ')],
      columns,
      env,
    );
    running.push(one);
    return one;
  }

  it('colours, unless told not to', async () => {
    const coloured = ctl('nodes');
    expect(await coloured.ended()).toBe(0);
    expect(coloured.screen).toContain(COLOUR);
    for (const plain of [
      ctl('nodes --no-color'),
      ctl('nodes', 120, { NO_COLOR: '1' }),
      ctl('nodes', 120, { TERM: 'dumb' }),
      ctl('nodes -o json'),
    ]) {
      expect(await plain.ended()).toBe(0);
      expect(plain.screen).not.toContain('\u001b');
    }
  });

  it.each(['nodes', 'gpus', 'models', 'replicas', 'endpoints', 'events', 'drain n2 --plan', 'node n1'])(
    '%s keeps its tables within a narrow window, and whole in a wide one',
    async (words) => {
      const narrow = ctl(words, 48);
      expect(await narrow.ended()).toBe(0);
      const tooWide = narrow.lines.filter((line) => displayWidth(line) > 48);
      expect(tooWide).toEqual([]);
      const wide = ctl(words, 300);
      await wide.ended();
      expect(wide.text).not.toContain('…');
    },
  );

  it('top is drawn again in place until interrupted', async () => {
    const top = ctl('top');
    await top.shows('2 of 2 endpoints up');
    cluster.clock.advance(1_000);
    await top.shows(/LAST BYTE[\s\S]*LAST BYTE/);
    expect(top.screen).toContain('\u001b[H\u001b[J');
    top.type(CTRL_C);
    expect(await top.ended()).toBe(130);
  });

  it('--watch shows what changed', async () => {
    const watch = ctl('nodes --watch');
    await watch.shows('n2');
    await cluster.ctl('cordon', 'n2');
    await watch.shows('connected,cordoned');
    watch.type(CTRL_C);
    expect(await watch.ended()).toBe(130);
    await cluster.ctl('uncordon', 'n2');
  });

  it('asks before a drain, and does nothing without a yes', async () => {
    const drain = ctl('drain n2');
    await drain.shows('drain n2? [y/N]');
    drain.type('n\r');
    expect(await drain.ended()).toBe(1);
    expect(drain.text).toContain('nothing was done');
    expect((await cluster.get('nodes/n2')).scheduling.target).toBe('schedulable');
  });

  // A question that was never answered ended the process with a warning of Node's and a code of its own.
  it.each([
    ['Ctrl-C', CTRL_C],
    ['Ctrl-D', '\u0004'],
  ])('takes %s for a no', async (_key, typed) => {
    const drain = ctl('drain n2');
    await drain.shows('drain n2? [y/N]');
    drain.type(typed);
    expect(await drain.ended()).toBe(130);
    expect(drain.lines.at(-1)).toBe('nothing was done');
    expect((await cluster.get('nodes/n2')).scheduling.target).toBe('schedulable');
  });

  it('drain --wait tells what it waits for; interrupting it cancels nothing; it ends with the drain', async () => {
    const first = ctl('drain n2 --wait --yes');
    await first.shows('must be Ready and steady first');
    // One line that is drawn again in place: what is left, and how long each bound lets it take.
    await first.shows(/\d+ ?m?s: 1 replica left, qwen-\w+ at most \d+m\w* more, drain \d+\w+/);
    cluster.clock.advance(60_000);
    await waitFor(() => first.screen.split(REDRAWN).length > 3, {
      deadlineMs: 30_000,
      what: 'the line to be drawn again',
    });
    const drawn = first.screen.split(REDRAWN).slice(1);
    expect(drawn.every((line) => displayWidth(line.split('\n')[0] ?? '') < 120)).toBe(true);
    first.type(CTRL_C);
    expect(await first.ended()).toBe(130);
    expect(first.text).toContain('the drain goes on; `llmgw ctl uncordon n2` cancels it');
    expect((await cluster.get('nodes/n2')).scheduling.state).toBe('draining');
    const second = ctl('drain n2 --wait --yes');
    await second.shows('must be Ready and steady first');
    await cluster.quiet();
    await cluster.ready();
    for (let step = 0; step < 5; step += 1) await cluster.pass(4_000);
    expect(await second.ended()).toBe(0);
    expect(second.lines.at(-1)).toMatch(/^n2: drained/);
  });
});
