import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { AgentWorld, freePort, profile, startCommand } from '../../test/support/agent/agent-world.js';
import { FakeGateway } from '../../test/support/agent/fake-gateway.js';
import { waitFor } from '../../test/support/wait-for.js';
import type { AgentConfig } from '../config/agent-config.js';
import { SHARD_DIRECTORIES_MAX } from './limits.js';
import { SecretMemory, secretsOf, secretVariables } from './secrets.js';

describe('secrets of an engine', () => {
  it('are known again by the names of their variables', () => {
    const env = { MINE: 'topsecret', HF_TOKEN: 'abc', PATH: '/bin' };
    const told = secretVariables(env, ['topsecret', 'abc']);
    expect(secretsOf(new Map(Object.entries({ ...env, ...told })))).toEqual(['topsecret', 'abc']);
    expect(secretVariables(env, [])).toEqual({});
    expect(secretsOf(undefined)).toEqual([]);
  });

  it('of the run before are remembered, and not those of all runs ever', () => {
    const memory = new SecretMemory();
    memory.redactorFor('s', ['first-value']);
    memory.redactorFor('s', ['second-value']);
    memory.redactorFor('s', ['third-value']);
    const kept = memory.redactorOfKept('s');
    expect(kept('first-value second-value third-value')).toBe('first-value [redacted] [redacted]');
    for (let shard = 0; shard < SHARD_DIRECTORIES_MAX; shard++) memory.redactorFor(`other-${shard}`, []);
    expect(memory.redactorOfKept('s')('third-value')).toBe('third-value');
  });
});

describe('the output of an engine that prints what it was given', () => {
  let world: AgentWorld;
  let gateway: FakeGateway;
  let config: AgentConfig;
  beforeEach(async () => {
    world = new AgentWorld();
    gateway = await FakeGateway.listen();
    config = world.config(gateway.address);
    writeFileSync(join(world.directory, 'secret'), 'plain-words-of-mine\n');
  });
  afterEach(async () => {
    await world.dispose();
    gateway.close();
  });

  async function start(generation: number): Promise<void> {
    // No name and no shape gives it away.
    const env = { MINE: { fromFile: join(world.directory, 'secret') } };
    const given = generation === 1 ? { env, args: ['--print-env'] } : {};
    gateway.start(startCommand(await freePort(), { generation, profile: profile(given) }));
    await gateway.waitForShard(
      'r1-0',
      'ready',
      (shard) => shard.phase === 'ready' && shard.generation === generation,
    );
  }
  async function output(previous: boolean): Promise<string> {
    const requestId = `q${gateway.messages.length}`;
    gateway.fetchLogs({ requestId, shardId: 'r1-0', tailLines: 0, follow: false, stop: false, previous });
    const chunks = (): { data: Uint8Array; end: boolean }[] =>
      gateway.messages.flatMap((message) =>
        message.kind === 'log' && message.chunk.requestId === requestId ? [message.chunk] : [],
      );
    await waitFor(() => chunks().some(({ end }) => end), { what: 'the whole output' });
    return Buffer.concat(chunks().map(({ data }) => data)).toString();
  }

  it('shows nothing of it after its run either', async () => {
    await world.start(config);
    await waitFor(() => gateway.lastReport, { what: 'a report' });
    await start(1);
    const now = await output(false);
    await start(2);
    const before = await output(true);
    for (const text of [now, before]) {
      expect(text).toContain('"MINE":"[redacted]"');
      expect(text).not.toContain('plain-words-of-mine');
    }
  });

  it('shows nothing of it to an agent that takes the engine over', async () => {
    const first = await world.start(config);
    await waitFor(() => gateway.lastReport, { what: 'a report' });
    await start(1);
    await first.close();
    await world.start(config);
    // What the first one said last comes over another stream.
    await waitFor(() => gateway.hellos === 2, { what: 'the second agent' });
    gateway.messages.length = 0;
    await gateway.waitForShard('r1-0', 'taken over', ({ phase }) => phase === 'ready');
    const text = await waitFor(async () => {
      const shown = await output(false);
      return shown.includes('MINE') && shown;
    });
    expect(text).toContain('"MINE":"[redacted]"');
    expect(text).not.toContain('plain-words-of-mine');
  });
});
