import { parse } from 'yaml';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { AgentConfig } from './agent-config.js';
import { describeConfig, jsonSchema } from './describe.js';
import { loadServerConfig } from './load.js';
import { ModelConfig, ServerConfig } from './server-config.js';
import { toModelSpecs, toStaticEndpoints } from './to-domain.js';
import { maskConfig, originText, shownValues } from './written.js';

const directory = mkdtempSync(join(tmpdir(), 'llmgw-written-'));
afterAll(() => rmSync(directory, { recursive: true }));
const KEY_FILE = join(directory, 'key');
writeFileSync(KEY_FILE, 'sk-FAKE789\n');

const FULL = `
endpoints: [{ id: e1, url: "https://h/llm/", models: [x], apiKeyFile: ${KEY_FILE}, maxConcurrency: 4 }]
auth: { admin: { tokens: [{ name: ops, hash: "sha256:${'ab'.repeat(32)}" }] } }
models:
  - name: m
    source: org/m
    profiles:
      - name: p
        engine: vllm
        gpus: 2
        gpuMemory: 70GiB
        args: ["--api-key", sk-FAKE456, "--hf-token=hf_FAKE111", "--max-model-len", "32768"]
        env: { HF_TOKEN: hf_FAKE123, PLAIN: shown, FILED: { fromFile: /run/secret } }
`;

function full() {
  const file = join(directory, 'llmgw.yaml');
  writeFileSync(file, FULL);
  return loadServerConfig({ file, env: { LLMGW_LISTEN: '127.0.0.1:1' } });
}

describe('a shown configuration', () => {
  it('is readable as a file again, but for its secrets', () => {
    const { config } = full();
    const masked = maskConfig(config);
    expect(masked).toMatchObject({ shutdownGrace: '30s', router: { bodyLimit: '64MiB' } });
    expect(masked).toMatchObject({ models: [{ profiles: [{ gpuMemory: '70GiB', startTimeout: '10m' }] }] });
    expect(masked).toMatchObject({
      models: [{ profiles: [{ env: { PLAIN: 'shown', FILED: { fromFile: '/run/secret' } } }] }],
    });
  });

  it('holds no secret', () => {
    const text = JSON.stringify(maskConfig(full().config));
    for (const secret of ['FAKE456', 'FAKE111', 'FAKE123', 'abab', 'FAKE789'])
      expect(text).not.toContain(secret);
    expect(text).toContain('32768');
  });

  it('says where each value comes from', () => {
    const { config, origins } = full();
    const shown = new Map(shownValues(config, origins).map(({ path, origin }) => [path, originText(origin)]));
    expect(shown.get('listen')).toBe('LLMGW_LISTEN');
    expect(shown.get('stateDir')).toBe('default');
    expect(shown.get('models[0].profiles[0].gpus')).toMatch(/llmgw\.yaml:10$/);
    expect(shown.get('models[0].profiles[0].shards')).toBe('default');
  });
});

describe('what the classes say about themselves', () => {
  it.each([ServerConfig, AgentConfig])('documents every setting of %o', (root) => {
    const settings = describeConfig(root);
    expect(settings.length).toBeGreaterThan(20);
    for (const { path, doc } of settings) expect([path, doc.endsWith('.')]).toEqual([path, true]);
  });

  it('knows units, defaults and variables', () => {
    const byPath = new Map(describeConfig(ServerConfig).map((setting) => [setting.path, setting]));
    expect(byPath.get('control.lostAfter')).toMatchObject({
      type: 'duration',
      default: '1m30s',
      variable: 'LLMGW_CONTROL_LOST_AFTER',
    });
    expect(byPath.get('models[].profiles[].engine')).toMatchObject({ required: true, variable: undefined });
    expect(byPath.get('router.profiles.<name>.retries.budget')).toMatchObject({ default: '20%' });
  });

  it('gives a schema that knows required keys and refuses others', () => {
    const schema = parse(JSON.stringify(jsonSchema(ServerConfig, 't'))) as {
      additionalProperties: boolean;
      properties: { endpoints: { items: { required: string[] } } };
    };
    expect(schema.additionalProperties).toBe(false);
    expect(schema.properties.endpoints.items.required).toEqual(['id', 'url', 'models']);
  });
});

describe('in the words of the domain', () => {
  it('keeps everything a placement depends on', () => {
    expect(toModelSpecs(full().config)).toEqual([
      expect.objectContaining({
        name: 'm',
        replicas: 1,
        placement: { strategy: 'pack', nodeSelector: {}, antiAffinity: false },
        profiles: [
          expect.objectContaining({
            gpus: 2,
            gpuMemoryBytes: 70 * 1024 ** 3,
            startTimeoutMs: 600_000,
            env: {
              HF_TOKEN: { value: 'hf_FAKE123' },
              PLAIN: { value: 'shown' },
              FILED: { fromFile: '/run/secret' },
            },
          }),
        ],
      }),
    ]);
  });

  it('wants nothing of a model that nothing can start', () => {
    const { config } = loadServerConfig({
      env: {},
      endpoints: ['e=http://h=m'],
      amend: (c) => void c.models.push(named('m')),
    });
    expect(toModelSpecs(config)[0]).toMatchObject({ replicas: 0, profiles: [] });
  });

  it('reads keys of static endpoints from their files', () => {
    expect(toStaticEndpoints(full().config)).toEqual([
      {
        id: 'e1',
        generation: 0,
        protocol: 'https',
        host: 'h',
        port: 443,
        basePath: '/llm',
        models: ['x'],
        pool: 'static',
        weight: 1,
        engine: 'unknown',
        maxConcurrency: 4,
        apiKey: 'sk-FAKE789',
      },
    ]);
  });
});

function named(name: string): ServerConfig['models'][number] {
  return Object.assign(new ModelConfig(), { name });
}
