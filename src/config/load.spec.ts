import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { EXPIRED_TLS, RENEWED_TLS, TEST_TLS } from '../../test/support/test-tls.js';
import { ConfigError, formatProblem } from '../shared/errors.js';
import { loadAgentConfig, loadServerConfig, type ServerSources } from './load.js';
import type { ServerConfig } from './server-config.js';

const directory = mkdtempSync(join(tmpdir(), 'llmgw-config-'));
afterAll(() => rmSync(directory, { recursive: true }));

const FILE = join(directory, 'llmgw.yaml');
const CERT = join(directory, 'own.crt');
const KEY = join(directory, 'own.key');
writeFileSync(CERT, TEST_TLS.cert);
writeFileSync(KEY, TEST_TLS.key);
const SERVED = 'endpoints: [{ id: e1, url: "http://127.0.0.1:1", models: [m1] }]';

function written(text: string): string {
  writeFileSync(FILE, text);
  return FILE;
}

/** Every problem as printed, with the file's name shortened. */
function problemsOf(load: () => unknown): string[] {
  try {
    load();
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return error.problems.map((problem) => formatProblem(problem).replaceAll(FILE, 'F'));
  }
  return [];
}

const problemsIn = (yaml: string, sources: Partial<ServerSources> = {}): string[] =>
  problemsOf(() => loadServerConfig({ file: written(yaml), env: {}, ...sources }));

const loaded = (yaml: string, sources: Partial<ServerSources> = {}): ServerConfig =>
  loadServerConfig({ file: written(yaml), env: {}, ...sources }).config;

describe('keys and structure', () => {
  it.each([
    [
      'a misspelt key',
      `adminn_listen: a\n${SERVED}`,
      'F:1:1: adminn_listen: unknown key; did you mean "adminListen"?',
    ],
    // A misspelt switch once left authentication off.
    [
      'a misspelt switch',
      `${SERVED}\nauth: { apiKeys: { requird: true } }`,
      'F:2:20: auth.apiKeys.requird: unknown key; did you mean "required"?',
    ],
    [
      'nothing near',
      `${SERVED}\nauth: { enabled: true }`,
      'F:2:9: auth.enabled: unknown key; expected one of apiKeys, admin, agents',
    ],
    [
      'a key too far in',
      `${SERVED}\nrouter:\n  models: []`,
      'F:3:3: router.models: unknown key; "models" belongs at the top level',
    ],
    [
      'a key too far out',
      `${SERVED}\nbodyLimit: 1MiB`,
      'F:2:1: bodyLimit: unknown key; "bodyLimit" belongs under router',
    ],
    [
      'an unknown key in a profile',
      'models: [{ name: m, profiles: [{ name: p, engine: sim, gpuz: 1 }] }]',
      'F:1:56: models[0].profiles[0].gpuz: unknown key; did you mean "gpus"?',
    ],
    [
      'a key twice',
      `${SERVED}\nlisten: 127.0.0.1:1\nlisten: 127.0.0.1:2`,
      'F:3:1: listen: duplicate key; first given in line 2',
    ],
    ['a number as key', `${SERVED}\n7: x`, 'F:2:1: expected text as key, got the number 7; quote it: "7"'],
    ['an empty file', '', 'F:1:1: the file is empty: expected a map of settings'],
    ['a file of comments', '# nothing\n', 'F:1:1: the file is empty: expected a map of settings'],
    ['a list at the top', '- a', 'F:1:1: expected a map of settings, got a list'],
    [
      'a list where a map is due',
      `${SERVED}\nrouter: [1]`,
      'F:2:9: router: expected a map of settings, got a list',
    ],
    ['a map where a list is due', 'models: { a: 1 }', 'F:1:9: models: expected a list of models, got a map'],
    [
      'a list where a value is due',
      `${SERVED}\nstateDir: [a]`,
      'F:2:11: stateDir: expected text, got a list',
    ],
    ['an empty value', `${SERVED}\nrouter:`, 'F:2:8: router: expected a map of settings, got nothing'],
    ['endless nesting', '['.repeat(5_000), 'F:1:1: not valid YAML: lists and maps are nested too deeply'],
    ['broken YAML', 'models: [', 'F:1:10: not valid YAML'],
    ['a tab as indentation', 'models:\n\t- a', 'F:2:1: not valid YAML'],
    ['two documents', `${SERVED}\n---\n${SERVED}`, 'not valid YAML'],
    [
      'an anchor that does not exist',
      `${SERVED}\nlog: *nowhere`,
      'F:2:6: log: expected a map of settings, got the unknown anchor *nowhere',
    ],
  ])('%s', (_name, yaml, expected) => {
    const problems = problemsIn(yaml);
    expect(problems.join('\n')).toContain(expected);
  });

  it('names all problems at once, in the order of the file', () => {
    const problems = problemsIn(
      [
        'adminn_listen: x',
        'shutdownGrace: 30',
        'models:',
        '  - name: 8',
        '    replicas: "two"',
        'log: { level: inf }',
      ].join('\n'),
      { env: { LLMGW_CONTROL_INTERVAL: 'soon' }, endpoints: ['nonsense'] },
    );
    expect(problems.map((problem) => problem.split(': ').slice(0, 2).join(' '))).toEqual([
      'F:1:1 adminn_listen',
      'F:2:16 shutdownGrace',
      'F:4:11 models[0].name',
      'F:5:15 models[0].replicas',
      'F:6:15 log.level',
      'LLMGW_CONTROL_INTERVAL control.interval',
      '--endpoint "nonsense" expected id=URL=model[,model]',
    ]);
  });

  it('takes anchors, but not a small file that grows without end', () => {
    expect(loaded(SERVED)).toBeDefined();
    const anchored = loaded(
      'models:\n  - { name: a, profiles: &p [{ name: p, engine: sim }] }\n  - { name: b, profiles: *p }',
    );
    expect(anchored.models[1]?.profiles[0]?.engine).toBe('sim');
    const levels = Array.from(
      { length: 8 },
      (_, n) =>
        `&a${n} [${Array(10)
          .fill(n === 0 ? 'x' : `*a${n - 1}`)
          .join(',')}]`,
    );
    expect(problemsIn(`models:\n${levels.map((level) => `  - ${level}`).join('\n')}`).length).toBeGreaterThan(
      0,
    );
  });

  it.each([
    ['a missing file', join(directory, 'none.yaml'), 'no such file'],
    ['a directory', directory, 'is a directory'],
  ])('%s', (_name, file, expected) => {
    expect(problemsOf(() => loadServerConfig({ file, env: {} }))).toEqual([
      `${file}: ${expected}`.replace('is a directory', 'is a directory, expected a file'),
    ]);
  });

  it('refuses a file that is not text', () => {
    writeFileSync(FILE, Buffer.from([0xff, 0xfe, 0x00, 0x80]));
    expect(problemsOf(() => loadServerConfig({ file: FILE, env: {} }))).toEqual(['F: is not UTF-8 text']);
  });
});

describe('values', () => {
  const model = (extra: string): string =>
    `models:\n  - name: m\n    ${extra}\n    profiles: [{ name: p, engine: sim }]`;
  const profile = (extra: string): string =>
    `models: [{ name: m, source: s, profiles: [{ name: p, engine: vllm, ${extra} }] }]`;
  const deadline = (value: string): string =>
    `${SERVED}\nrouter: { profiles: { interactive: { deadlines: { ${value} } } } }`;

  it.each([
    [model('replicas: "two"'), 'models[0].replicas: expected a whole number, got "two"'],
    [model('replicas: "2"'), 'models[0].replicas: expected a whole number, got "2"; leave out the quotes'],
    [model('replicas: 1.5'), 'models[0].replicas: expected a whole number, got the number 1.5'],
    [model('replicas: -1'), 'models[0].replicas: expected 0 to 1000, got -1'],
    [model('aliases: [8]'), 'models[0].aliases[0]: expected text, got the number 8; quote it: "8"'],
    [model('aliases: [true]'), 'models[0].aliases[0]: expected text, got the boolean true; quote it: "true"'],
    [
      model('aliases: [2024-01-01]'),
      'models[0].aliases[0]: expected text, got the date 2024-01-01; quote it: "2024-01-01"',
    ],
    [model('aliases: [~]'), 'models[0].aliases[0]: expected text, got nothing'],
    [model('aliases: [a, a]'), 'models[0].aliases: lists "a" twice'],
    [model('aliases: ["--help"]'), 'models[0].aliases: expected a name without blanks'],
    [model('aliases: ["a b"]'), 'models[0].aliases: expected a name without blanks'],
    [model('aliases: ["_unknown"]'), 'models[0].aliases: expected a name without blanks'],
    [
      model('placement: { strategy: packk }'),
      'models[0].placement.strategy: expected one of pack, spread, got "packk" (did you mean "pack"?)',
    ],
    [
      model('placement: { nodeSelector: { zone: 1 } }'),
      'models[0].placement.nodeSelector.zone: expected text, got the number 1; quote it: "1"',
    ],
    [
      model('placement: { nodeSelector: { "a b": x } }'),
      'models[0].placement.nodeSelector["a b"]: expected letters, digits',
    ],
    [model('source: "a\\nb"'), 'models[0].source: expected text without control characters'],
    [profile('gpuMemory: 70G'), 'models[0].profiles[0].gpuMemory: expected a size with a unit'],
    [profile('gpuMemory: 70'), 'models[0].profiles[0].gpuMemory: expected a size with a unit'],
    [profile('gpus: true'), 'models[0].profiles[0].gpus: expected a whole number, got the boolean true'],
    [
      profile('args: [--max-model-len, 32768]'),
      'models[0].profiles[0].args[1]: expected text, got the number 32768; quote it: "32768"',
    ],
    [
      profile('env: { A: 1 }'),
      'models[0].profiles[0].env.A: expected text or { fromFile: PATH }, got the number 1; quote it: "1"',
    ],
    [
      profile('env: { A: { fromFil: x } }'),
      'models[0].profiles[0].env.A.fromFil: unknown key; did you mean "fromFile"?',
    ],
    [profile('env: { A: {} }'), 'models[0].profiles[0].env.A.fromFile: is required: expected text'],
    [
      profile('env: { __proto__: x }'),
      'models[0].profiles[0].env.__proto__: expected the name of an environment variable',
    ],
    [
      profile('env: { CUDA_VISIBLE_DEVICES: "0" }'),
      'models[0].profiles[0].env.CUDA_VISIBLE_DEVICES: CUDA_VISIBLE_DEVICES is set by the agent',
    ],
    [
      profile('startTimeout: 0s'),
      'models[0].profiles[0].startTimeout: cannot be switched off; expected at least 1s',
    ],
    ['models: [{ profiles: [{ name: p, engine: sim }] }]', 'models[0].name: is required: expected text'],
    [
      'models: [{ name: m, profiles: [{ engine: sim }] }]',
      'models[0].profiles[0].name: is required: expected text',
    ],
    [
      'models: [{ name: m, profiles: [{ name: p }] }]',
      'models[0].profiles[0].engine: is required: expected one of vllm',
    ],
    ['models: [~]', 'models[0]: expected a map of settings, got nothing'],
    [
      deadline('queue: 30'),
      'deadlines.queue: expected a duration with a unit, such as 500ms, 30s, 1m30s or 2h, got "30"; add a unit: 30s or 30ms',
    ],
    [deadline('queue: "30"'), 'deadlines.queue: expected a duration'],
    [
      deadline('queue: 0'),
      'deadlines.queue: expected a duration with a unit, such as 500ms, 30s, 1m30s or 2h, got "0"; to switch it off write 0s',
    ],
    [deadline('connect: 0s'), 'deadlines.connect: cannot be switched off'],
    [deadline('idle: -1s'), 'deadlines.idle: expected a duration'],
    [deadline('idle: ""'), 'deadlines.idle: expected a duration'],
    [
      `${SERVED}\nlisten: 8080`,
      'F:2:9: listen: expected host:port, such as 127.0.0.1:8080, 0.0.0.0:8080 or [::1]:8080, got the number 8080',
    ],
    [`${SERVED}\nlisten: ":8080"`, 'F:2:9: listen: expected host:port'],
    [`${SERVED}\ninsecure: "yes"`, 'F:2:11: insecure: expected true or false, got "yes"'],
    [`${SERVED}\ninsecure: yes`, 'F:2:11: insecure: expected true or false, got "yes"'],
    [
      `${SERVED}\nrouter: { profiles: { x: { retries: { budget: 20 } } } }`,
      'retries.budget: expected a percentage',
    ],
    [`${SERVED}\nrouter: { profiles: { x: { policy: roundrobin } } }`, '(did you mean "roundRobin"?)'],
    [
      `${SERVED}\nrouter: { cors: { origins: ["https://a.example/"] } }`,
      'router.cors.origins[0]: expected an origin',
    ],
    [`${SERVED}\ncontrol: { portRange: [20000] }`, 'control.portRange: expected two numbers'],
    [
      `${SERVED}\ncontrol: { portRange: [20010, 20000] }`,
      'control.portRange: the first number must not be above the last',
    ],
    [`${SERVED}\ncontrol: { portRange: [80, 90] }`, 'control.portRange: expected numbers from 1024 to 65535'],
    [
      'endpoints: [{ id: e1, url: "http://169.254.169.254", models: [m] }]',
      'endpoints[0].url: the link-local address',
    ],
    [
      'endpoints: [{ id: e1, url: "http://u:hunter2@h", models: [m] }]',
      'endpoints[0].url: a URL must not hold a user name',
    ],
    ['endpoints: [{ id: e1, url: "http://h/v1", models: [m] }]', 'endpoints[0].url: leave out /v1'],
    ['endpoints: [{ id: e1, url: "http://h", models: [] }]', 'endpoints[0].models: expected at least one'],
    ['endpoints: [{ id: "a/b", url: "http://h", models: [m] }]', 'endpoints[0].id: expected letters, digits'],
    [
      'endpoints: [{ id: e1, url: "http://h", models: [m], apiKeyFile: /nowhere/key }]',
      'endpoints[0].apiKeyFile: /nowhere/key: no such file',
    ],
    [
      `${SERVED}\nauth: { admin: { tokens: [{ name: a, hash: secret }] } }`,
      'auth.admin.tokens[0].hash: expected sha256: and 64 hexadecimal digits',
    ],
  ])('%s', (yaml, expected) => {
    const problems = problemsIn(yaml);
    expect(problems).toHaveLength(1 + (expected.includes('fromFil:') ? 1 : 0));
    expect(problems.join('\n')).toContain(expected);
    expect(problems.join('\n')).not.toContain('hunter2');
  });
});

describe('clashes', () => {
  const two = (first: string, second: string): string =>
    `models:\n  - { name: a, ${first} profiles: [{ name: p, engine: sim }] }\n  - { name: b, ${second} profiles: [{ name: p, engine: sim }] }`;

  it.each([
    [
      'two models with one name',
      two('', 'name: a,').replace('name: b, name: a', 'name: a'),
      'F:3:13: models[1].name: "a" is already used by models[0].name',
    ],
    [
      'an alias that is a name',
      two('aliases: [b],', ''),
      'models[0].aliases[0]: "b" is already used by models[1].name',
    ],
    [
      'one alias of two models',
      two('aliases: [x],', 'aliases: [x],'),
      'models[1].aliases[0]: "x" is already used by models[0].aliases[0]',
    ],
    [
      'an alias of its own name',
      two('aliases: [a],', ''),
      'models[0].aliases[0]: "a" is already used by models[0].name',
    ],
    [
      'an alias that an endpoint serves',
      `${two('aliases: [m1],', '')}\n${SERVED}`,
      'models[0].aliases[0]: "m1" is already used by endpoints[0].models[0]',
    ],
    [
      'two profiles with one name',
      'models: [{ name: a, profiles: [{ name: p, engine: sim }, { name: p, engine: sim }] }]',
      'models[0].profiles[1].name: "p" is already the name of a profile',
    ],
    [
      'two endpoints with one id',
      'endpoints: [{ id: e, url: "http://h", models: [m] }, { id: e, url: "http://i", models: [m] }]',
      'endpoints[1].id: "e" is already the id of endpoints[0]',
    ],
    [
      'a routing profile that does not exist',
      two('routing: interactiv,', ''),
      'models[0].routing: no routing profile is named "interactiv" (did you mean "interactive"?)',
    ],
    [
      'a default profile that does not exist',
      `${SERVED}\nrouter: { defaultProfile: slow }`,
      'router.defaultProfile: no routing profile is named "slow"; known are interactive',
    ],
    ['a fallback to nothing', two('fallback: [c],', ''), 'models[0].fallback[0]: no model is named "c"'],
    [
      'a fallback to itself',
      two('aliases: [x], fallback: [x],', ''),
      'models[0].fallback[0]: a model cannot fall back to itself',
    ],
    [
      'fallbacks in a circle',
      two('fallback: [b],', 'fallback: [a],'),
      'models[0].fallback[0]: leads back to where it began: a → b → a',
    ],
    [
      'a canary that is nowhere',
      two('canary: [{ pool: q, weight: 5% }],', ''),
      'models[0].canary[0].pool: no launch profile or pool of "a" is named "q" (did you mean "p"?)',
    ],
    [
      'a canary of no known model',
      two('canary: [{ model: c, weight: 5% }],', ''),
      'models[0].canary[0].model: no model is named "c"',
    ],
    [
      'a canary that is two things',
      two('canary: [{ model: b, pool: p, weight: 5% }],', ''),
      'models[0].canary[0]: expected either a model or a pool',
    ],
    [
      'canaries of more than everything',
      two('canary: [{ model: b, weight: 60% }, { pool: p, weight: 50% }],', ''),
      'models[0].canary: the weights are 110 % together, more than there is',
    ],
    [
      'an engine without a source',
      'models: [{ name: a, profiles: [{ name: p, engine: vllm }] }]',
      'models[0].profiles[0].engine: vllm needs to know what to load',
    ],
    [
      'a model nothing runs or serves',
      'models: [{ name: a }]',
      'models[0].profiles: expected at least one launch profile',
    ],
    [
      'a flag that the agent sets itself',
      'models: [{ name: m, profiles: [{ name: p, engine: sim, args: [--slots, "2", --port, "9999"] }] }]',
      'models[0].profiles[0].args[2]: --port is set by llmgw for engine sim; remove it from args',
    ],
    [
      'an engine that does not exist, with arguments',
      'models: [{ name: m, profiles: [{ name: p, engine: vlm, args: [--port, "9999"] }] }]',
      'models[0].profiles[0].engine: ',
    ],
    [
      'one address for two listeners',
      `${SERVED}\nlisten: 127.0.0.1:8081`,
      'adminListen: 127.0.0.1:8081 is already the address of listen',
    ],
    [
      'deadlines of liveness in the wrong order',
      `${SERVED}\ncontrol: { unreachableAfter: 2m }`,
      'control.unreachableAfter: must be shorter than control.lostAfter',
    ],
    [
      'back-off in the wrong order',
      `${SERVED}\ncontrol: { baseBackoff: 1h }`,
      'control.baseBackoff: must not be longer than control.maxBackoff',
    ],
  ])('%s', (_name, yaml, expected) => {
    expect(problemsIn(yaml)).toEqual([expect.stringContaining(expected)]);
  });

  it('serves a model of the file from a static endpoint too, and one without profiles from it alone', () => {
    const config = loaded(
      `models: [{ name: m1, aliases: [x], fallback: [x2] }, { name: x2, profiles: [{ name: p, engine: sim }] }]\n${SERVED}`,
    );
    expect(config.models[0]?.profiles).toEqual([]);
  });

  it('has the fixed text when there is nothing to serve', () => {
    const text = 'nothing to serve: declare models with profiles, or give --endpoint for a router-only run';
    expect(problemsOf(() => loadServerConfig({ env: {} }))).toEqual([text]);
    expect(problemsIn('listen: 127.0.0.1:1')).toEqual([text]);
    expect(loadServerConfig({ env: {}, mayServeNothing: true }).config.models).toEqual([]);
  });
});

describe('listeners beyond loopback', () => {
  const token = `{ name: ops, hash: "sha256:${'0'.repeat(64)}" }`;
  const tls = `{ certFile: ${CERT}, keyFile: ${KEY} }`;

  it.each([
    [
      'the admin API in the open',
      'adminListen: 0.0.0.0:8081',
      'adminListen: 0.0.0.0:8081 is reachable from other machines without authentication and TLS: set auth.admin.tokens and auth.admin.tls, or write insecure: true',
    ],
    [
      'tokens without TLS',
      `adminListen: "[::]:8081"\nauth: { admin: { tokens: [${token}] } }`,
      'adminListen: [::]:8081 is reachable',
    ],
    ['agents in the open', 'agentListen: 10.0.0.1:8082', 'agentListen: 10.0.0.1:8082 is reachable'],
    [
      'TLS that lets every agent in',
      `agentListen: 10.0.0.1:8082\nauth: { agents: { tls: ${tls} } }`,
      'agentListen: 10.0.0.1:8082 is reachable',
    ],
  ])('%s is refused', (_name, yaml, expected) => {
    expect(problemsIn(`${SERVED}\n${yaml}`)).toEqual([expect.stringContaining(expected)]);
  });

  it.each([
    ['written by hand', 'adminListen: 0.0.0.0:8081\nagentListen: 0.0.0.0:8082\ninsecure: true'],
    ['tokens and TLS', `adminListen: 0.0.0.0:8081\nauth: { admin: { tokens: [${token}], tls: ${tls} } }`],
    [
      'client certificates',
      `agentListen: 0.0.0.0:8082\nauth: { agents: { tls: { certFile: ${CERT}, keyFile: ${KEY}, caFile: ${CERT} } } }`,
    ],
    [
      'stored join tokens and TLS',
      `agentListen: 0.0.0.0:8082\nauth: { agents: { tls: ${tls}, joinTokensRequired: true } }`,
    ],
    [
      'join tokens and TLS',
      `agentListen: 0.0.0.0:8082\nauth: { agents: { tls: ${tls}, joinTokensFile: ${FILE} } }`,
    ],
  ])('%s is allowed', (_name, yaml) => {
    expect(problemsIn(`${SERVED}\n${yaml}`)).toEqual([]);
  });

  it.each([
    ['a file that holds none', FILE, KEY, `${FILE} holds no certificate`],
    ['the key of another', join(directory, 'other.crt'), KEY, `the key in ${KEY} does not belong to`],
    ['no key', CERT, FILE, `${FILE} holds no private key that can be read`],
  ])('finds certificates that no listener can start with: %s', (_name, certFile, keyFile, expected) => {
    writeFileSync(join(directory, 'other.crt'), RENEWED_TLS.cert);
    const yaml = `${SERVED}\nauth: { agents: { tls: { certFile: ${certFile}, keyFile: ${keyFile} } } }`;
    expect(problemsIn(yaml)).toEqual([
      expect.stringContaining(`auth.agents.tls: ${expected.replaceAll(FILE, 'F')}`),
    ]);
    // Of the agent it is only told: its engines serve without a link, and the files are read anew at each dial.
    const loadedAgent = loadAgentConfig({
      file: written(`tls: { certFile: ${certFile}, keyFile: ${keyFile} }`),
      env: {},
    });
    expect(loadedAgent.warnings).toEqual([
      expect.objectContaining({ path: 'tls', message: expect.stringContaining(expected) as string }),
    ]);
  });

  it('warns of a certificate that has ended', () => {
    const ended = join(directory, 'ended.crt');
    writeFileSync(ended, EXPIRED_TLS.cert);
    const file = written(`${SERVED}\nauth: { admin: { tls: { certFile: ${ended}, keyFile: ${KEY} } } }`);
    expect(loadServerConfig({ file, env: {} }).warnings).toEqual([
      expect.objectContaining({
        path: 'auth.admin.tls',
        message: `${ended} ended at 2021-01-01T00:00:00.000Z`,
      }),
    ]);
  });

  it('warns once about clients without keys, and not where they need one', () => {
    const warningsOf = (auth: string) => {
      const file = written(`${SERVED}\nlisten: 0.0.0.0:8080\n${auth}`);
      return loadServerConfig({ file, env: {} }).warnings.map(({ message }) => message);
    };
    expect(warningsOf('')).toEqual([expect.stringContaining('needs no API key: set auth.apiKeys.required')]);
    expect(warningsOf('auth: { apiKeys: { required: true } }')).toEqual([]);
  });
});

describe('precedence and origins', () => {
  const sources: ServerSources = {
    file: FILE,
    env: { LLMGW_LISTEN: '127.0.0.1:2', LLMGW_ADMIN_LISTEN: '127.0.0.1:3', LLMGW_CONTROL_INTERVAL: '' },
    flags: [{ flag: '--listen', path: 'listen', text: '127.0.0.1:1' }],
  };

  it('flag beats environment beats file beats default; empty variables are unset', () => {
    written(
      `${SERVED}\nlisten: 127.0.0.1:9\nadminListen: 127.0.0.1:9\nagentListen: 127.0.0.1:4\ncontrol: { interval: 7s }`,
    );
    const { config, origins } = loadServerConfig(sources);
    expect(config).toMatchObject({
      listen: '127.0.0.1:1',
      adminListen: '127.0.0.1:3',
      agentListen: '127.0.0.1:4',
      stateDir: './.llmgw',
    });
    expect(config.control.interval).toBe(7_000);
    expect(origins.get('listen')).toEqual({ kind: 'flag', source: '--listen' });
    expect(origins.get('adminListen')).toEqual({ kind: 'environment', source: 'LLMGW_ADMIN_LISTEN' });
    expect(origins.get('agentListen')).toEqual({ kind: 'file', source: FILE, line: 4, column: 14 });
    expect(origins.get('stateDir')).toBeUndefined();
  });

  // Kubernetes gives every pod variables made from the names of services; they must change nothing.
  it('reads only its own variables', () => {
    const env = {
      LLMGW_PORT: 'tcp://10.0.0.1:80',
      LLMGW_SERVICE_HOST: '10.0.0.1',
      LLMGW_LISTEN_PORT: 'tcp://1:1',
      PORT: '99999',
    };
    const { config, warnings } = loadServerConfig({ file: written(SERVED), env });
    expect(config.listen).toBe('127.0.0.1:8080');
    expect(warnings).toEqual([]);
  });

  it('warns about a variable that is nearly one of its own', () => {
    const { warnings } = loadServerConfig({ file: written(SERVED), env: { LLMGW_LISTENN: 'x' } });
    expect(warnings.map(formatProblem)).toEqual(['LLMGW_LISTENN: is not read; did you mean LLMGW_LISTEN?']);
  });

  it.each([
    ['LLMGW_LISTEN', 'tcp://10.0.0.1:80', 'LLMGW_LISTEN: listen: expected host:port'],
    ['LLMGW_INSECURE', 'yes', 'LLMGW_INSECURE: insecure: expected true or false'],
    ['LLMGW_CONTROL_LOST_AFTER', '90', 'LLMGW_CONTROL_LOST_AFTER: control.lostAfter: expected a duration'],
    ['LLMGW_ROUTER_BODY_LIMIT', '1', 'LLMGW_ROUTER_BODY_LIMIT: router.bodyLimit: expected a size'],
    [
      'LLMGW_CONTROL_MAX_CONCURRENT_LOADS',
      '0',
      'LLMGW_CONTROL_MAX_CONCURRENT_LOADS: control.maxConcurrentLoads: expected 1 to 1000, got 0',
    ],
  ])('a wrong %s names the variable', (name, value, expected) => {
    expect(problemsIn(SERVED, { env: { [name]: value } })).toEqual([expect.stringContaining(expected)]);
  });

  it('sets optional parts from the environment', () => {
    const env = { LLMGW_AUTH_ADMIN_TLS_CERT_FILE: CERT, LLMGW_AUTH_ADMIN_TLS_KEY_FILE: KEY };
    expect(loaded(SERVED, { env }).auth.admin.tls?.certFile).toBe(CERT);
    const half = problemsIn(SERVED, { env: { LLMGW_AUTH_ADMIN_TLS_CERT_FILE: CERT } });
    expect(half).toEqual([expect.stringContaining('auth.admin.tls.keyFile: is required')]);
  });

  it('adds --endpoint to the endpoints of the file, and lets it replace one of the same id', () => {
    const config = loaded(SERVED, { endpoints: ['e1=http://h:2=m1', 'e2=http://h:3=m2'] });
    expect(config.endpoints.map(({ id, url }) => [id, url])).toEqual([
      ['e1', 'http://h:2'],
      ['e2', 'http://h:3'],
    ]);
    const twice = problemsIn(SERVED, { endpoints: ['e2=http://h:3=m2', 'e2=http://h:4=m2'] });
    expect(twice).toEqual([
      '--endpoint "e2=http://h:4=m2": endpoints[2].id: "e2" is already the id of endpoints[1]',
    ]);
  });
});

describe('the result', () => {
  it('is complete and frozen to the bottom', () => {
    const config = loaded('models: [{ name: m, profiles: [{ name: p, engine: sim, stopGrace: 0s }] }]');
    expect(config.models[0]).toMatchObject({ replicas: 1, aliases: [], placement: { strategy: 'pack' } });
    expect(config.models[0]?.profiles[0]).toMatchObject({
      shards: 1,
      gpus: 0,
      startTimeout: 600_000,
      stopGrace: 0,
    });
    expect('gpuMemory' in config.models[0]!.profiles[0]!).toBe(false);
    expect(() => ((config.router.profiles['interactive']!.deadlines as { idle: number }).idle = 1)).toThrow(
      TypeError,
    );
    expect(() => (config.models as unknown[]).push(1)).toThrow(TypeError);
  });

  it('keeps the built-in routing profile beside those of the file', () => {
    const config = loaded(`${SERVED}\nrouter: { profiles: { batch: { policy: leastLoad } } }`);
    expect(Object.keys(config.router.profiles)).toEqual(['interactive', 'batch']);
    const changed = loaded(`${SERVED}\nrouter: { profiles: { interactive: { deadlines: { idle: 5s } } } }`);
    expect(changed.router.profiles['interactive']?.deadlines).toMatchObject({ idle: 5_000, queue: 30_000 });
  });

  it('does not share defaults between two readings', () => {
    loaded(`${SERVED}\nrouter: { profiles: { interactive: { deadlines: { idle: 5s } } } }`);
    expect(loaded(SERVED).router.profiles['interactive']?.deadlines.idle).toBe(60_000);
  });

  it('takes waits longer than timers can hold', () => {
    expect(loaded(`${SERVED}\ncontrol: { maxBackoff: 25d }`).control.maxBackoff).toBe(25 * 86_400_000);
  });

  it('warns about ports the system hands out itself, and secrets in the open', () => {
    const { warnings } = loadServerConfig({
      file: written(
        'control: { portRange: [1024, 65535] }\nmodels: [{ name: m, profiles: [{ name: p, engine: sim, gpuType: x, env: { HF_TOKEN: t }, args: ["--api-key", k] }] }]',
      ),
      env: {},
    });
    const text = warnings.map(formatProblem).join('\n');
    expect(text).toContain('env.HF_TOKEN: looks like a secret');
    expect(text).toContain('args[0]: a key in arguments');
    expect(text).toContain('gpuType: has no effect without gpus');
    expect(text).toContain('listen: port 8080 lies in control.portRange');
  });
});

describe("the agent's file", () => {
  const problemsInAgent = (yaml: string, labels: string[] = []): string[] =>
    problemsOf(() => loadAgentConfig({ file: written(yaml), env: {}, labels }));

  it.each([
    ['engines: { vlm: {} }', 'engines.vlm: unknown key; did you mean "vllm"?'],
    ['engines: { vllm: { allowArgs: [max-model-len] } }', 'engines.vllm.allowArgs: expected a flag'],
    ['labels: { gpu: 8 }', 'labels.gpu: expected text, got the number 8; quote it: "8"'],
    ['gpus: { driver: static }', 'gpus.static: driver static needs at least one device'],
    ['gpus: { static: [{ uuid: a }] }', 'gpus.driver: devices are declared but driver is auto'],
    [
      'gpus: { driver: static, static: [{ uuid: a }, { uuid: a }] }',
      'gpus.static[1].uuid: "a" is declared twice',
    ],
    ['gpus: { driver: static, static: [{ uuid: a, memory: 80 }] }', 'gpus.static[0].memory: expected a size'],
    ['address: 169.254.1.1', 'address: the link-local address'],
    ['address: "http://h"', 'address: expected a host name'],
    [`tls: { certFile: ${FILE} }`, 'tls: certFile and keyFile belong together'],
    ['joinTokenFile: /nowhere/token', 'joinTokenFile: /nowhere/token: no such file'],
    ['server: h', 'server: expected host:port'],
    ['nodeId: "a b"', 'nodeId: expected letters'],
  ])('%s', (yaml, expected) => {
    expect(problemsInAgent(yaml)).toEqual([expect.stringContaining(expected)]);
  });

  it.each([
    [
      "this looks like an agent's file: `config check --agent`",
      loadServerConfig,
      'heartbeat: 5s\nengines: {}',
    ],
    [
      "this looks like a server's file: `config check` without",
      loadAgentConfig,
      'listen: 127.0.0.1:1\nmodels: []',
    ],
  ] as const)('taken for the other one is said first: %s', (said, load, yaml) => {
    const [first, ...rest] = problemsOf(() => load({ file: written(yaml), env: {} }));
    expect(first).toContain(said);
    expect(rest.join('\n')).toContain('unknown key');
  });

  it('adds labels of the command line to those of the file', () => {
    const { config } = loadAgentConfig({
      file: written('labels: { a: x, b: y }'),
      env: {},
      labels: ['b=z', 'c=1=2'],
    });
    expect(config.labels).toEqual({ a: 'x', b: 'z', c: '1=2' });
    expect(problemsInAgent('labels: { a: x }', ['b'])).toEqual(['--label "b": expected KEY=VALUE']);
  });

  it('reads a full file', () => {
    const { config } = loadAgentConfig({
      file: written(
        'server: 10.0.0.1:8082\nengines: { vllm: { binary: /opt/vllm, env: { A: b } }, sim: {} }\ngpus: { driver: static, static: [{ uuid: g0, type: H100, memory: 80GiB }] }',
      ),
      env: { LLMGW_NODE_ID: 'n1' },
    });
    expect(config).toMatchObject({ nodeId: 'n1', engines: { vllm: { binary: '/opt/vllm', denyArgs: [] } } });
    expect(config.gpus.static[0]?.memory).toBe(80 * 1024 ** 3);
  });
});
