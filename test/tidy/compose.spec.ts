import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { Script } from 'node:vm';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { OTHER_COMMANDS } from '../../src/cli/ctl/completion-script.js';
import { loadAgentConfig, loadServerConfig } from '../../src/config/load.js';
import { ROOT, read } from './repository.js';

interface Service {
  readonly image?: string;
  readonly build?: string;
  readonly init?: boolean;
  readonly command?: readonly string[];
  readonly restart?: string;
  readonly profiles?: readonly string[];
  readonly hostname?: string;
  readonly stop_grace_period?: string;
  readonly environment?: Readonly<Record<string, string>>;
  readonly volumes?: readonly string[];
  readonly ports?: readonly string[];
  readonly depends_on?: readonly string[] | Readonly<Record<string, { readonly condition: string }>>;
  readonly healthcheck?: { readonly test: readonly string[] } & Readonly<Record<string, unknown>>;
}

/** Keys of a service that are used here; a misspelt one would be ignored by nobody but this test. */
const SERVICE_KEYS = new Set([
  ...['build', 'command', 'depends_on', 'environment', 'healthcheck', 'hostname', 'image', 'init', 'ports'],
  ...['profiles', 'restart', 'stop_grace_period', 'volumes'],
]);
const HEALTHCHECK_KEYS = new Set(['test', 'interval', 'timeout', 'retries', 'start_period']);

const compose = parse(read('docker-compose.yml').text, { merge: true }) as {
  services: Readonly<Record<string, Service>>;
  volumes: Readonly<Record<string, unknown>>;
};
const services = Object.entries(compose.services);
const yaml = (path: string): unknown => parse(read(path).text);

describe('docker-compose.yml', () => {
  it('has a server, two agents, Prometheus and Grafana, each with a health check', () => {
    const always = services.filter(([, { profiles }]) => profiles === undefined);
    expect(always.map(([name]) => name)).toEqual(['server', 'agent-1', 'agent-2', 'prometheus', 'grafana']);
    for (const [name, { healthcheck }] of always) {
      expect([name, healthcheck?.test[0]]).toEqual([name, expect.stringMatching(/^CMD(-SHELL)?$/)]);
    }
  });

  it('uses only keys that there are', () => {
    const odd = services.flatMap(([name, service]) => [
      ...Object.keys(service)
        .filter((key) => !SERVICE_KEYS.has(key))
        .map((key) => `${name}.${key}`),
      ...Object.keys(service.healthcheck ?? {})
        .filter((key) => !HEALTHCHECK_KEYS.has(key))
        .map((key) => `${name}.healthcheck.${key}`),
    ]);
    expect(odd).toEqual([]);
  });

  it('has texts where texts are wanted: a colon in one that is not quoted makes it a mapping', () => {
    const lists = services.flatMap(([name, { command = [], volumes = [], ports = [], healthcheck }]) =>
      [...command, ...volumes, ...ports, ...(healthcheck?.test ?? [])].map((one) => [name, typeof one, one]),
    );
    expect(lists.filter(([, type]) => type !== 'string')).toEqual([]);
  });

  it('asks for its health what Node can read', () => {
    const [, , flag, program = ''] = compose.services['server']?.healthcheck?.test ?? [];
    expect(flag).toBe('-e');
    expect(() => new Script(program)).not.toThrow();
  });

  it('runs our own image under an init: as process 1 Node reaps nobody', () => {
    const own = services.filter(([, { image }]) => image === 'llmgw');
    expect(own.length).toBe(4);
    for (const [name, { init }] of own) expect([name, init]).toEqual([name, true]);
  });

  it('gives our program only commands and flags that it has', () => {
    const wrong = services.flatMap(([name, { command = [] }]) => {
      const known = OTHER_COMMANDS.find(({ path }) => path === command[0]);
      if (name === 'prometheus' || name === 'grafana') return [];
      if (known === undefined) return [`${name}: ${command[0]}`];
      const flags = command.filter((word) => word.startsWith('-')).map((word) => word.split('=')[0]!);
      return flags.filter((flag) => !known.options.includes(flag)).map((flag) => `${name}: ${flag}`);
    });
    expect(wrong).toEqual([]);
  });

  it('mounts what is there and waits for services that exist', () => {
    const missing = services.flatMap(([name, { volumes = [], depends_on: needs = [] }]) => [
      ...volumes
        .map((volume) => volume.split(':')[0]!)
        .filter((source) =>
          source.startsWith('.') ? !existsSync(join(ROOT, source)) : !(source in compose.volumes),
        )
        .map((source) => `${name}: ${source}`),
      ...(Array.isArray(needs) ? (needs as string[]) : Object.keys(needs))
        .filter((need) => !(need in compose.services))
        .map((need) => `${name} needs ${need}`),
    ]);
    expect(missing).toEqual([]);
  });

  it('publishes ports on the loopback address only', () => {
    const ports = services.flatMap(([, service]) => service.ports ?? []);
    expect(ports.length).toBeGreaterThan(3);
    expect(ports.filter((port) => !port.startsWith('127.0.0.1:'))).toEqual([]);
  });

  it('names images by version', () => {
    const foreign = services.map(([, { image }]) => image!).filter((image) => image !== 'llmgw');
    for (const image of foreign) expect(image).toMatch(/:v?\d+\.\d+\.\d+$/);
  });
});

describe('what the services read', () => {
  it('configurations are valid', () => {
    const path = (file: string) => join(ROOT, 'deploy/compose', file);
    expect(loadServerConfig({ file: path('server.yaml'), env: {} }).config.models).toHaveLength(1);
    expect(loadAgentConfig({ file: path('agent.yaml'), env: {} }).config.server).toBe('server:8082');
  });

  it('state lies in folders that the image gives to its user', () => {
    const made = read('Dockerfile').text;
    const dirs = ['server.yaml', 'agent.yaml'].map(
      (file) => (yaml(`deploy/compose/${file}`) as { stateDir: string }).stateDir,
    );
    for (const dir of dirs) expect(made).toMatch(new RegExp(`install -d -o node .*${dir}( |$)`, 'm'));
  });

  it('addresses are those of services', () => {
    const prometheus = yaml('deploy/prometheus/prometheus.yml') as {
      scrape_configs: { job_name: string; static_configs: { targets: string[] }[] }[];
      rule_files: string[];
    };
    expect(prometheus.scrape_configs.map((scrape) => scrape.job_name)).toEqual(['llmgw']);
    expect(prometheus.scrape_configs[0]?.static_configs[0]?.targets).toEqual(['server:8081']);
    for (const file of prometheus.rule_files)
      expect(existsSync(join(ROOT, 'deploy/prometheus', file))).toBe(true);
    const { datasources } = yaml('deploy/grafana/provisioning/datasources/prometheus.yml') as {
      datasources: { url: string }[];
    };
    for (const { url } of datasources) expect(compose.services).toHaveProperty(new URL(url).hostname);
    const { providers } = yaml('deploy/grafana/provisioning/dashboards/llmgw.yml') as {
      providers: { options: { path: string } }[];
    };
    const mounted = compose.services['grafana']?.volumes?.map((volume) => volume.split(':')[1]);
    for (const { options } of providers) expect(mounted).toContain(options.path);
  });
});
