import { describe, expect, it } from 'vitest';
import { stringify } from 'yaml';
import { modelSpec } from '../catalog/model-spec.js';
import { diffCatalog } from '../domain/catalog/catalog-diff.js';
import { seededRandom } from '../shared/random.js';
import { diffSettings } from './config-diff.js';
import { ConfigInForce, keepAtStart } from './config-in-force.js';
import { loadServerConfig } from './load.js';
import type { ServerConfig } from './server-config.js';

const load = (text: string): ServerConfig => loadServerConfig({ file: 'f.yaml', text, env: {} }).config;

interface Full {
  listen: string;
  shutdownGrace: string;
  endpoints: { id: string; url: string; models: string[]; weight?: number }[];
  models: {
    name: string;
    replicas?: number;
    aliases?: string[];
    source?: string;
    placement?: { nodeSelector: Record<string, string> };
    profiles: {
      name: string;
      engine: string;
      gpus?: number;
      args?: string[];
      env?: Record<string, string>;
    }[];
  }[];
  router: { profiles: { interactive: { queue: { max: number } }; batch: { policy: string } } };
  auth: { admin: { tokens: { name: string; hash: string; role: string }[] } };
}

type Edit = (full: Full) => unknown;

const FULL: Full = {
  listen: '127.0.0.1:8080',
  shutdownGrace: '40s',
  endpoints: [
    { id: 'e1', url: 'http://127.0.0.1:9001', models: ['x1'], weight: 2 },
    { id: 'e2', url: 'http://127.0.0.1:9002', models: ['x1', 'x2'] },
  ],
  models: [
    {
      name: 'm1',
      aliases: ['default'],
      source: 'repo/m1',
      placement: { nodeSelector: { zone: 'a', rack: 'r1' } },
      profiles: [
        { name: 'p', engine: 'vllm', gpus: 1, args: ['--a', '1'], env: { B: 'b', A: 'a' } },
        { name: 'q', engine: 'vllm', gpus: 2 },
      ],
    },
    { name: 'm2', profiles: [{ name: 'p', engine: 'sim' }] },
  ],
  router: { profiles: { interactive: { queue: { max: 10 } }, batch: { policy: 'roundRobin' } } },
  auth: { admin: { tokens: [{ name: 'ann', hash: `sha256:${'a'.repeat(64)}`, role: 'admin' }] } },
};

/** Keys of maps in any order, and models and endpoints, which have names; other lists are orders of preference. */
function shuffled(value: unknown, random: () => number, path = ''): unknown {
  const mix = <T>(items: readonly T[]): T[] =>
    items
      .map((item) => ({ item, at: random() }))
      .toSorted((a, b) => a.at - b.at)
      .map(({ item }) => item);
  if (Array.isArray(value)) {
    const items = value.map((item) => shuffled(item, random, `${path}[]`));
    return path === 'models' || path === 'endpoints' ? mix(items) : items;
  }
  if (typeof value !== 'object' || value === null) return value;
  const entries = Object.entries(value).map(([key, one]) => [
    key,
    shuffled(one, random, path === '' ? key : `${path}.${key}`),
  ]);
  return Object.fromEntries(mix(entries)) as unknown;
}

function differences(before: ServerConfig, after: ServerConfig): readonly unknown[] {
  const specs = (config: ServerConfig) => config.models.map((model) => modelSpec(model, undefined));
  return [...diffSettings(before, after), ...diffCatalog(specs(before), specs(after))];
}

describe('two configurations', () => {
  it.each(Array.from({ length: 40 }, (_, seed) => seed))(
    'that differ in order and comments only are the same, seed %i',
    (seed) => {
      const random = seededRandom(seed);
      const text = stringify(shuffled(FULL, random))
        .split('\n')
        .map((line) => (random() < 0.3 && line.trim() !== '' ? `${line} # ${seed}` : line))
        .join('\n');
      expect(differences(load(stringify(FULL)), load(`# new\n${text}`))).toEqual([]);
    },
  );

  const change = (edit: Edit) => {
    const copy = structuredClone(FULL);
    edit(copy);
    return differences(load(stringify(FULL)), load(stringify(copy)));
  };

  it.each<readonly [path: string, edit: Edit, told: object]>([
    [
      'shutdownGrace',
      (full) => (full.shutdownGrace = '10s'),
      { before: '40s', after: '10s', needsRestart: false },
    ],
    ['listen', (full) => (full.listen = '127.0.0.1:1'), { after: '127.0.0.1:1', needsRestart: true }],
    ['endpoints[e1].weight', (full) => (full.endpoints[0]!.weight = 3), { before: '2', after: '3' }],
    ['endpoints[e2]', (full) => full.endpoints.pop(), { needsRestart: false }],
    [
      'router.profiles.interactive.queue.max',
      (full) => (full.router.profiles.interactive.queue.max = 11),
      { after: '11' },
    ],
    [
      'auth.admin.tokens[ann].hash',
      (full) => (full.auth.admin.tokens[0]!.hash = `sha256:${'b'.repeat(64)}`),
      { before: '[masked]', after: '[masked]' },
    ],
  ])('are told apart by %s alone', (path, edit, told) => {
    expect(change(edit)).toMatchObject([{ path, ...told }]);
  });

  it.each<readonly [what: string, edit: Edit, rolls: readonly string[]]>([
    ['args', (full) => full.models[0]!.profiles[0]!.args!.push('--b'), ['p']],
    ['env', (full) => (full.models[0]!.profiles[0]!.env!.A = 'c'), ['p']],
    ['source', (full) => (full.models[0]!.source = 'repo/other'), ['p', 'q']],
    ['aliases', (full) => full.models[0]!.aliases!.push('second'), []],
    ['placement', (full) => (full.models[0]!.placement!.nodeSelector.zone = 'b'), []],
    ['order of profiles', (full) => full.models[0]!.profiles.reverse(), []],
    ['replicas', (full) => Object.assign(full.models[0]!, { replicas: 3 }), []],
    ['a profile that is gone', (full) => full.models[0]!.profiles.pop(), ['q']],
  ])('roll what %s reaches and nothing else', (_what, edit, rolls) => {
    expect(change(edit)).toMatchObject([{ model: 'm1', kind: 'changed', rolls }]);
  });
});

describe('the configuration in force', () => {
  it('is read through one view that always has the latest, whole and frozen', () => {
    const first = load(stringify(FULL));
    const inForce = new ConfigInForce(first);
    const next = load(stringify({ ...FULL, shutdownGrace: '1s' }));
    inForce.replace(next);
    expect(inForce.view.shutdownGrace).toBe(1_000);
    expect(inForce.view.models).toBe(next.models);
    expect(diffSettings(next, inForce.view)).toEqual([]);
    expect(first.shutdownGrace).toBe(40_000);
    expect(() => Object.assign(inForce.view, { listen: 'x' })).toThrow(TypeError);
  });

  it('keeps what only a start can change, also where it is new or gone', () => {
    const present = load(stringify(FULL));
    const wanted = load(
      stringify({
        ...FULL,
        listen: '127.0.0.1:1',
        stateDir: '/else',
        shutdownGrace: '1s',
        log: { level: 'warn', format: 'pretty' },
      }),
    );
    const kept = keepAtStart(wanted, present);
    expect(kept).toMatchObject({
      listen: present.listen,
      stateDir: present.stateDir,
      shutdownGrace: 1_000,
      log: { level: 'warn', format: 'json' },
    });
    expect(Object.isFrozen(kept.log)).toBe(true);
    expect(wanted.listen).toBe('127.0.0.1:1');
    expect(diffSettings(present, kept).map(({ path }) => path)).toEqual(['shutdownGrace', 'log.level']);
  });
});
