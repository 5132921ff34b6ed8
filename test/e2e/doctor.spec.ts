import { spawn, spawnSync } from 'node:child_process';
import { chmodSync, mkdirSync } from 'node:fs';
import { createServer, type Server } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { FakeGateway } from '../support/agent/fake-gateway.js';
import { FakeNvidiaSmi } from '../support/agent/fake-nvidia-smi.js';
import { ServedNode } from '../support/agent/served-node.js';
import { LlmgwProcess, Scratch, type Exit } from '../support/llmgw-process.js';

const NOWHERE = 'server: 127.0.0.1:1\n';
const canMount = spawnSync('unshare', ['--mount', 'mount', '-t', 'tmpfs', 'tmpfs', '/mnt']).status === 0;
const isRoot = process.getuid?.() === 0;

/** The doctor on a real machine with one fault after the other: what an operator reads, and what a script gets. */
describe('llmgw agent --check', () => {
  const scratch = new Scratch();
  afterAll(() => scratch.remove());

  async function check(
    config: string,
    below: readonly string[] = [],
    env: Readonly<Record<string, string>> = {},
    stateDir = scratch.path('state'),
  ): Promise<{ readonly exit: Exit; readonly text: string }> {
    const file = scratch.file('check.yaml', `stateDir: ${stateDir}\n${config}`);
    const child = new LlmgwProcess(
      ['agent', '--check', '--config', file],
      env,
      scratch.dir,
      undefined,
      below,
    );
    const exit = await child.ended(60_000);
    return { exit, text: child.stdout };
  }

  it('ends with 0 when nothing has to be mended, and says what it did not find', async () => {
    const { exit, text } = await check(NOWHERE);
    expect(exit.code).toBe(0);
    expect(text).toMatch(/^ok {7}state directory: .*, to be made, /m);
    expect(text).toMatch(/^warning {2}server: 127\.0\.0\.1:1 cannot be reached\n {9}→ start the server/m);
    expect(text).not.toMatch(/^problem/m);
  });

  it.each<[string, string, RegExp]>([
    [
      'a missing program',
      'engines: { vllm: { binary: /none/vllm } }',
      /^problem {2}engine vllm: \/none\/vllm is not an executable file\n {9}→ /m,
    ],
    [
      'a missing GPU driver',
      'gpus: { driver: nvidia }',
      /^problem {2}gpus: nvidia-smi cannot be started: spawn nvidia-smi ENOENT\n {9}→ /m,
    ],
    [
      'a wrong interface',
      'mgmtInterface: nothing0',
      /^problem {2}node: mgmtInterface nothing0 has no address; this machine has .*lo.*\n {9}→ /m,
    ],
    ['a missing model root', 'modelRoots: [/none]', /^problem {2}model root: ENOENT.*\n {9}→ create \/none/m],
  ])('names %s and ends with 1', async (_what, config, expected) => {
    const { exit, text } = await check(NOWHERE + config);
    expect(text).toMatch(expected);
    expect(text.match(/^problem/gm)).toHaveLength(1);
    expect(exit.code).toBe(1);
  });

  it('ends with 2 for a file that makes no sense', async () => {
    expect((await check('servr: x')).exit.code).toBe(2);
  });

  describe('with ports of the engines in other hands', () => {
    let holder: Server;
    let port: number;
    beforeAll(async () => {
      holder = createServer();
      // Whichever is free: other programs of this machine may hold some as well.
      for (port = 20_900; port < 21_000; port++) {
        const bound = await new Promise<boolean>((resolve) => {
          holder.once('error', () => resolve(false));
          holder.listen(port, '127.0.0.1', () => resolve(true));
        });
        if (bound) return;
      }
    });
    afterAll(() => holder.close());

    it('names the holder', async () => {
      const { text } = await check(NOWHERE);
      expect(text).toMatch(/^warning {2}ports: ports of engines are taken: /m);
      if (!text.includes(' more')) expect(text).toContain(`${port} (by `);
    });
  });

  it.skipIf(!isRoot)('sees that this user may not write to the state directory', async () => {
    mkdirSync(scratch.path('state'), { mode: 0o700 });
    chmodSync(scratch.dir, 0o755);
    const { exit, text } = await check(NOWHERE, ['setpriv', '--reuid=65534', '--clear-groups']);
    expect(text).toMatch(/^problem {2}state directory: EACCES.*\n {9}→ make .*state writable for this user/m);
    expect(exit.code).toBe(1);
  });

  it.skipIf(!canMount)('sees a disk that is nearly full, and one that is mounted read-only', async () => {
    const mounted = (options: string): string[] => {
      const command = `mount -t tmpfs -o ${options} tmpfs ${scratch.path('state')} && exec "$@"`;
      return ['unshare', '--mount', '/bin/sh', '-c', command, 'sh'];
    };
    mkdirSync(scratch.path('state'), { recursive: true });
    const full = await check(NOWHERE, mounted('size=64m'));
    expect(full.text).toMatch(/^problem {2}state directory: only 0\.1 GiB free in /m);
    const fixed = await check(NOWHERE, mounted('ro'));
    expect(fixed.text).toMatch(/^problem {2}state directory: EROFS/m);
  });

  it('looks at the server without becoming its agent', async () => {
    const gateway = await FakeGateway.listen();
    try {
      const { exit, text } = await check(`server: ${gateway.address}`);
      expect(text).toMatch(/^ok {7}clock: agrees with the server's$/m);
      expect(text).toMatch(/^ok {7}server: /m);
      expect(gateway.hellos).toBe(0);
      expect(exit.code).toBe(0);
    } finally {
      gateway.close();
    }
  });

  it('knows the ports of the server that its agent has met', async () => {
    const node = await ServedNode.start({
      scratch,
      server:
        'control: { portRange: [33000, 33009] }\nmodels: [{ name: m, replicas: 0, profiles: [{ name: p, engine: sim }] }]',
      agent: 'gpus: { driver: none }',
    });
    await node.dispose();
    const { text } = await check(NOWHERE, [], {}, node.stateDir);
    // Whether they overlap with those of outgoing connections is this machine's.
    expect(text).toMatch(/^(?:ok {7}|warning {2})ports: .*33000 to 33009.*as the server says/m);
    expect((await check(NOWHERE)).text).toMatch(/ports: .*20000 to 20999.*the server's default/);
  });

  it('names who holds memory of a GPU, and what others may read', async () => {
    const uuid = 'GPU-aaaaaaaa-0000-0000-0000-000000000000';
    const smi = new FakeNvidiaSmi([uuid]);
    const holder = spawn('sleep', ['600'], { stdio: 'ignore' });
    try {
      smi.hold({ uuid, mib: 10_240, pid: holder.pid ?? 0 });
      const token = scratch.file('token', 'secret');
      chmodSync(token, 0o644);
      const config = `${NOWHERE}gpus: { driver: nvidia }\njoinTokenFile: ${token}\n`;
      const { text, exit } = await check(config, [], { PATH: smi.path });
      expect(text).toMatch(new RegExp(`^ok {7}gpu: ${uuid} H100`, 'm'));
      expect(text).toMatch(
        new RegExp(
          `^warning {2}gpu: ${uuid}: 10\\.0 GiB held by pid ${holder.pid} \\(sleep\\)\\n {9}→ `,
          'm',
        ),
      );
      expect(text).toMatch(/^warning {2}credentials: others on this machine may use .*\n {9}→ chmod 600 /m);
      expect(text).not.toContain('secret');
      expect(exit.code).toBe(0);
    } finally {
      holder.kill('SIGKILL');
      smi.remove();
    }
  });

  it.skipIf(!canMount)('says that as process 1 it reaps', async () => {
    const { text } = await check(NOWHERE, ['unshare', '--fork', '--pid', '--mount-proc', '--kill-child']);
    expect(text).toMatch(/^ok {7}processes: the agent is process 1 and reaps/m);
  });
});
