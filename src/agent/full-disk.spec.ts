import { spawnSync } from 'node:child_process';
import { mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  AgentWorld,
  freePort,
  profile,
  program,
  startCommand,
} from '../../test/support/agent/agent-world.js';
import { FakeGateway } from '../../test/support/agent/fake-gateway.js';
import { waitFor } from '../../test/support/wait-for.js';
import { AgentEngineConfig } from '../config/agent-config.js';

const canMount = spawnSync('unshare', ['--mount', 'mount', '-t', 'tmpfs', 'tmpfs', '/mnt']).status === 0;

describe.skipIf(!canMount)('a disk that fills up during a download', () => {
  let world: AgentWorld;
  let gateway: FakeGateway;
  let disk: string;

  beforeEach(async () => {
    world = new AgentWorld();
    gateway = await FakeGateway.listen();
    disk = join(world.directory, 'disk');
    mkdirSync(disk);
    spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=280m', 'tmpfs', disk]);
  });
  afterEach(async () => {
    gateway.close();
    // Lazily: whatever still has a file open there must not keep it mounted.
    spawnSync('umount', ['--lazy', disk]);
    await world.dispose();
  });

  it('is the verdict even when its error found no room in the log; with room again the shard starts', async () => {
    const blob = join(disk, 'weights.incomplete');
    const config = world.config(gateway.address, (own) => {
      own.stateDir = join(disk, 'state');
      const engine = new AgentEngineConfig();
      engine.binary = '/bin/sh';
      const serve = `${process.execPath} ${program('fake-engine.mjs')} --port "$1" --model "$2"`;
      const download = `dd if=/dev/zero of=${blob} bs=1M 2>/dev/null || { echo 'OSError: [Errno 28] No space left on device' >&2; exit 1; }`;
      engine.baseArgs = ['-c', `[ -e ${blob}.no ] || ${download}; exec ${serve}`, 'sh', '{port}', '{model}'];
      own.engines = { command: engine };
    });
    await world.start(config, { nodeFactsIntervalMs: 100 });
    await waitFor(() => gateway.lastReport);
    const end = (generation: number, phase: string) =>
      gateway.waitForShard(
        'r1-0',
        `${phase} in generation ${generation}`,
        (shard) => shard.phase === phase && shard.generation === generation,
        30_000,
      );
    gateway.start(startCommand(await freePort(), { profile: profile() }));
    expect(await end(1, 'exited')).toMatchObject({ verdict: 'diskFull', exitCode: 1 });

    gateway.start(startCommand(await freePort(), { generation: 2 }));
    expect(await end(2, 'exited')).toMatchObject({ verdict: 'diskFull' });
    await waitFor(() => gateway.lastReport?.conditions.some(({ type }) => type === 'StateDirFull'), {
      what: 'the node to say so',
    });

    rmSync(blob);
    mkdirSync(`${blob}.no`);
    gateway.start(startCommand(await freePort(), { generation: 3 }));
    expect(await end(3, 'ready')).toMatchObject({ generation: 3 });
    gateway.stop('r1-0', 3, 1_000);
    await end(3, 'exited');
  });
});
