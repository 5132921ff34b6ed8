import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { startCommand } from '../../test/support/agent/agent-world.js';
import { parseShardSpec, shardSpecOf } from './shard-spec.js';
import { EMPTY_STATE, StateFile, type AgentState } from './state-file.js';

describe('the state file', () => {
  let directory: string;
  beforeEach(() => {
    directory = mkdtempSync(join(tmpdir(), 'llmgw-state-'));
  });
  afterEach(() => rmSync(directory, { recursive: true, force: true }));

  const path = (): string => join(directory, 'agent-state.json');
  const state: AgentState = {
    highestTerm: 5,
    generations: [['r1-0', 3]],
    shards: [
      {
        spec: shardSpecOf(startCommand(20_000)),
        ready: true,
        process: { pid: 9, startTicks: 8, bootId: 'b' },
      },
    ],
    gpus: [{ uuid: 'A', type: 'H100', held: [] }],
  };

  it('reads back what was written, readable by nobody else', () => {
    const file = new StateFile(directory);
    expect(file.load(1)).toEqual({ state: EMPTY_STATE, lost: true });
    expect(file.save(state)).toBe(true);
    expect(new StateFile(directory).load(1)).toEqual({ state, lost: false });
    expect(statSync(path()).mode & 0o777).toBe(0o600);
    expect(readdirSync(directory)).toEqual(['agent-state.json']);
  });

  it.each([
    ['nothing', ''],
    ['garbage', '\u0000\u0001'],
    ['half of it', '{"version":1,"highestTerm":5,"sh'],
    ['another version', '{"version":99,"highestTerm":1,"shards":[],"gpus":[]}'],
    ['a shard without an id', '{"version":1,"highestTerm":1,"shards":[{"spec":{}}],"gpus":[]}'],
    ['another document', '[]'],
    [
      'a process that is none',
      JSON.stringify({ version: 1, ...state, shards: [{ ...state.shards[0], process: null }] }),
    ],
    [
      'an end without words',
      JSON.stringify({ version: 1, ...state, shards: [{ ...state.shards[0], end: {} }] }),
    ],
  ])('moves %s aside and keeps it for a person to see', (_what, text) => {
    writeFileSync(path(), text);
    const loaded = new StateFile(directory).load(42);
    expect(loaded).toEqual({ state: EMPTY_STATE, lost: true, movedAside: `${path()}.unreadable-42` });
    expect(readFileSync(`${path()}.unreadable-42`, 'utf8')).toBe(text);
    expect(existsSync(path())).toBe(false);
  });

  it('is read without what makes no sense in its lists', () => {
    const generations = [null, 'x', ['r1-0', 3], ['r2-0', '4'], []];
    writeFileSync(
      path(),
      JSON.stringify({ version: 1, ...state, generations, gpus: [...state.gpus, null, {}] }),
    );
    expect(new StateFile(directory).load(1)).toEqual({ state, lost: false });
  });

  it('keeps the old content when it cannot write, and says why', () => {
    const file = new StateFile(directory);
    file.save(state);
    mkdirSync(`${path()}.tmp`);
    expect(file.save({ ...state, highestTerm: 6 })).toBe(false);
    expect(file.writeError).toMatch(/EISDIR/);
    expect(new StateFile(directory).load(1).state.highestTerm).toBe(5);
    rmSync(`${path()}.tmp`, { recursive: true });
    expect(file.save({ ...state, highestTerm: 6 })).toBe(true);
    expect(file.writeError).toBeUndefined();
    expect(new StateFile(directory).load(1).state.highestTerm).toBe(6);
  });
});

describe('a shard spec', () => {
  it('holds nothing that could be a secret', () => {
    const command = startCommand(1, {
      profile: {
        ...startCommand(1).profile,
        args: ['--x', 'argsecret'],
        env: { HF_TOKEN: { value: 'envsecret' } },
      },
    });
    expect(JSON.stringify(shardSpecOf(command))).not.toMatch(/argsecret|envsecret/);
  });

  it('is read back only when whole', () => {
    const spec = shardSpecOf(startCommand(1));
    expect(parseShardSpec(JSON.stringify(spec))).toEqual(spec);
    for (const key of ['shardId', 'generation', 'ports', 'engine', 'gpuUuids', 'specDigest'])
      expect(parseShardSpec({ ...spec, [key]: undefined })).toBeUndefined();
    expect(parseShardSpec({ ...spec, engine: 'shell' })).toBeUndefined();
    expect(parseShardSpec('{')).toBeUndefined();
  });
});
