import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, it } from 'vitest';
import {
  ROOT,
  codeOnly,
  importsOf,
  isSource,
  projectFiles,
  read,
  roomOf,
  type TextFile,
} from './repository.js';

const files = projectFiles();
const sources = files.filter(isSource).map(read);
const typescript = files.filter((path) => path.endsWith('.ts')).map(read);
const markdown = files.filter((path) => path.endsWith('.md')).map(read);

/** `path:line` of every match in the code of the files, comments and strings left out. */
function occurrences(where: readonly TextFile[], pattern: RegExp): string[] {
  return where.flatMap(({ path, text }) =>
    codeOnly(text)
      .split('\n')
      .flatMap((line, at) => (pattern.test(line) ? [`${path}:${at + 1}`] : [])),
  );
}

/**
 * Which room may import from which, besides itself and `domain`, `shared` and `config`. A room that is not named here
 * may import nothing else. `config` looks at the router's table only as a type.
 */
const MAY_IMPORT: Readonly<Record<string, readonly string[]>> = {
  main: ['cli'],
  // Server and agent only by `await import()`: see below.
  cli: ['admin-api', 'server', 'agent', 'engines', 'store'],
  server: [
    'access',
    'admin-api',
    'agent-gateway',
    'catalog',
    'events',
    'inventory',
    'metrics',
    'reconciler',
    'router',
    'store',
  ],
  'admin-api': [
    'access',
    'agent-gateway',
    'agent-protocol',
    'catalog',
    'events',
    'inventory',
    'metrics',
    'reconciler',
    'router',
    'store',
  ],
  'agent-gateway': ['access', 'agent-protocol', 'events', 'inventory', 'reconciler', 'store'],
  reconciler: ['catalog', 'events', 'inventory', 'router', 'store'],
  metrics: ['admin-api', 'agent-gateway', 'events', 'reconciler', 'router', 'store'],
  catalog: ['events', 'store'],
  inventory: ['agent-protocol', 'events', 'store'],
  access: ['router', 'store'],
  events: ['store'],
  store: [],
  router: [],
  agent: ['agent-protocol'],
  'agent-protocol': [],
  engines: [],
  config: ['router'],
  shared: [],
  domain: [],
};

const EVERYBODY_MAY = ['domain', 'shared', 'config'];
/** Rooms that others are built on: they know even less. */
const KNOWS_ONLY: Readonly<Record<string, readonly string[]>> = {
  domain: [],
  shared: ['domain'],
  engines: ['domain', 'shared'],
};

describe('rooms', () => {
  it('import only in the directions of the design', () => {
    const wrong = sources.flatMap((source) => {
      const room = roomOf(source.path);
      const allowed = new Set([room, ...(KNOWS_ONLY[room] ?? EVERYBODY_MAY), ...(MAY_IMPORT[room] ?? [])]);
      return importsOf(source)
        .filter(({ file }) => file !== undefined && !allowed.has(roomOf(file)))
        .map(
          ({ specifier }) =>
            `${source.path} imports ${specifier}: ${room} may not know ${specifier.split('/').at(-2)}`,
        );
    });
    expect(wrong).toEqual([]);
  });

  it('are all known here, so that a new one is placed on purpose', () => {
    expect(
      [...new Set(sources.map(({ path }) => roomOf(path)))].filter((room) => MAY_IMPORT[room] === undefined),
    ).toEqual([]);
  });

  it('domain uses nothing from outside itself, not even Node', () => {
    const wrong = sources
      .filter(({ path }) => roomOf(path) === 'domain')
      .flatMap((source) => importsOf(source).map(({ specifier }) => [source.path, specifier]))
      .filter(([, specifier]) => !specifier!.startsWith('.'));
    expect(wrong).toEqual([]);
  });

  // `ctl` starts in a fifth of a second because nothing of the server is loaded with it.
  it('cli loads server, agent and engines only when they are started', () => {
    const wrong = sources
      .filter(({ path }) => roomOf(path) === 'cli')
      .flatMap((source) => importsOf(source).map((found) => ({ from: source.path, ...found })))
      .filter(
        ({ file, kind }) =>
          file !== undefined &&
          ['server', 'agent', 'engines', 'admin-api', 'store'].includes(roomOf(file)) &&
          kind === 'value',
      )
      .map(({ from, specifier }) => `${from} imports ${specifier}: use await import()`);
    expect(wrong).toEqual([]);
  });

  it('what ctl loads at its start holds no Nest, no validator, no logger', () => {
    const heavy = reachable('src/cli/lean-runner.ts').filter((specifier) =>
      /^(@nestjs|nest-commander$|class-validator|class-transformer|pino|fastify|rxjs|@grpc|undici|yaml)/.test(
        specifier,
      ),
    );
    expect(heavy).toEqual([]);
  });

  it('config uses the router as a type only', () => {
    const wrong = sources
      .filter(({ path }) => roomOf(path) === 'config')
      .flatMap((source) => importsOf(source))
      .filter(({ file, kind }) => file !== undefined && roomOf(file) === 'router' && kind !== 'type');
    expect(wrong).toEqual([]);
  });
});

/** Packages and Node modules reached from a file by imports that run at load. */
function reachable(entry: string): string[] {
  const byPath = new Map(sources.map((source) => [source.path, source]));
  const packages = new Set<string>();
  const seen = new Set<string>();
  const walk = (path: string): void => {
    const source = byPath.get(path);
    if (source === undefined || seen.has(path)) return;
    seen.add(path);
    for (const { specifier, file, kind } of importsOf(source)) {
      if (kind !== 'value') continue;
      if (file === undefined) packages.add(specifier);
      else walk(file);
    }
  };
  walk(entry);
  return [...packages];
}

describe('time, chance and the outside', () => {
  const domain = sources.filter(({ path }) => roomOf(path) === 'domain');

  it.each([
    ['Date', /\bDate\b/, 'take the time as an argument'],
    ['performance', /\bperformance\b/, 'take the time as an argument'],
    ['timers', /\bset(Timeout|Interval|Immediate)\b|\bqueueMicrotask\b/, 'return when to look again'],
    ['Math.random', /\bMath\.random\b/, 'take a Random as an argument'],
    ['crypto', /\brandomUUID\b|\brandomBytes\b/, 'take ids as arguments'],
    ['async', /\basync\b|\bawait\b|\bPromise\b/, 'decide on data that is there'],
    [
      'process and console',
      /(?<![.\w])process\.(env|argv|std|exit|pid|on|next|hr|platform)|\bconsole\./,
      'return what is to be done or said',
    ],
  ])('domain has no %s', (_name, pattern, instead) => {
    expect(occurrences(domain, pattern).map((place) => `${place}: ${instead}`)).toEqual([]);
  });

  /** Own processes and the process's own frame: nothing there decides. */
  const SHELLS = ['src/shared/clock.ts', 'src/shared/random.ts', 'src/main.ts'];
  const elsewhere = sources.filter(({ path }) => !SHELLS.includes(path));

  it.each([
    ['wall clocks', /\bDate\.now\(|\bnew Date\(\)/, 'Clock.wallMs of src/shared/clock.ts'],
    ['monotonic clocks', /\bperformance\.now\(|\bhrtime\b/, 'Clock.monotonicMs of src/shared/clock.ts'],
    ['timers', /(?<![.\w])set(Timeout|Interval)\(/, 'Clock.setTimer of src/shared/clock.ts'],
    ['chance', /\bMath\.random\b/, 'Random of src/shared/random.ts'],
    ['output past the log', /\bconsole\./, 'the Logger of src/shared/logger.ts'],
  ])('%s come from one place', (_name, pattern, instead) => {
    expect(occurrences(elsewhere, pattern).map((place) => `${place}: use ${instead}`)).toEqual([]);
  });
});

describe('shape of the code', () => {
  it('has one cycle in the module graph, tied by a forwardRef on the Dispatcher token', () => {
    const places = occurrences(sources, /\bforwardRef\(/).map((place) => place.split(':')[0]);
    expect(places).toEqual(['src/reconciler/reconciler.service.ts', 'src/server/server.module.ts']);
    const reconciler = sources.find(({ path }) => path === 'src/reconciler/reconciler.service.ts');
    expect(reconciler?.text).toContain('@Inject(forwardRef(() => DISPATCHER))');
  });

  it('has no barrels, no default exports, no drawers for everything', () => {
    const names = files.filter((path) => /(^|\/)(index|utils?|helpers?|common|misc)\.(ts|mjs)$/.test(path));
    expect(names).toEqual([]);
    const own = typescript.filter(({ path }) => path !== 'vitest.config.ts');
    expect(occurrences(own, /^export default\b|^export \* from\b/)).toEqual([]);
  });

  it('names files in kebab-case', () => {
    const odd = files.filter(
      (path) => /^(src|test|scripts)\//.test(path) && !/^[a-z0-9.-]+$/.test(path.split('/').at(-1)!),
    );
    expect(odd).toEqual([]);
  });

  it('imports with the .js suffix that Node needs', () => {
    const wrong = typescript.flatMap((source) =>
      importsOf(source)
        .filter(({ specifier }) => specifier.startsWith('.') && !/\.(js|mjs|json)$/.test(specifier))
        .map(({ specifier }) => `${source.path} imports ${specifier}`),
    );
    expect(wrong).toEqual([]);
  });

  /** A ratchet: a file over the limit stands here with its length, may shrink, and may not grow. */
  const LONG_FILES: Readonly<Record<string, number>> = {};

  it('keeps files below 500 lines, and the few longer ones from growing', () => {
    const lengths = sources.map(({ path, text }) => [path, text.split('\n').length - 1] as const);
    const tooLong = lengths.filter(([path, lines]) => lines > (LONG_FILES[path] ?? 500));
    expect(tooLong).toEqual([]);
    const stale = Object.keys(LONG_FILES).filter(
      (path) => (lengths.find(([name]) => name === path)?.[1] ?? 0) <= 500,
    );
    expect(stale).toEqual([]);
  });
});

describe('words', () => {
  it('speak of the project alone, not of the place it was made', () => {
    const forbidden = /\/work\/(wt|main|shared)\b|registry\.npmjs|artifactory|\bTODO\b|\bFIXME\b|\bXXX\b/;
    const own = files.filter(
      (path) => !/\.(golden|gguf|png|ico|woff2?)$/.test(path) && path !== 'test/tidy/tidy.spec.ts',
    );
    const found = own
      .map(read)
      .flatMap(({ path, text }) =>
        text
          .split('\n')
          .flatMap((line, at) =>
            forbidden.test(line) ? [`${path}:${at + 1}: ${line.trim().slice(0, 80)}`] : [],
          ),
      );
    expect(found).toEqual([]);
  });

  it('every document has exactly one title', () => {
    const titles = markdown.map(({ path, text }) => [path, withoutFences(text).match(/^# /gm)?.length ?? 0]);
    expect(titles.filter(([, count]) => count !== 1)).toEqual([]);
  });

  it('links of documents lead to files that are there', () => {
    const dead = markdown.flatMap(({ path, text }) =>
      [...withoutFences(text).matchAll(/\]\(([^)\s#]+)(?:#[^)]*)?\)/g)]
        .map(([, target]) => target!)
        .filter((target) => !/^[a-z]+:/.test(target) && !existsSync(join(ROOT, dirname(path), target)))
        .map((target) => `${path} links to ${target}`),
    );
    expect(dead).toEqual([]);
  });
});

const withoutFences = (text: string): string => text.replace(/^```[\s\S]*?^```/gm, '');
