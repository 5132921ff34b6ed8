/** What an operator sees who follows a log while the agent or the server is away: real processes, the real command. */
import { afterEach, describe, expect, it } from 'vitest';
import { program } from '../support/agent/agent-world.js';
import { ServedNode } from '../support/agent/served-node.js';
import { LlmgwProcess } from '../support/llmgw-process.js';
import { waitFor } from '../support/wait-for.js';

const SERVER = `
control: { interval: 200ms, baseBackoff: 1s, settleAfterStart: 3s }
models:
  - name: m1
    profiles: [{ name: p, engine: command, gpus: 0, stopGrace: 1s }]
`;
/** An engine that counts aloud, as long as it lives. */
const ENGINE = [
  'n=0; (while kill -0 $$; do n=$((n+1)); echo "count $n"; sleep 0.05; done) &',
  `exec ${process.execPath} ${program('fake-engine.mjs')} --port {port} --model {model}`,
].join(' ');
const AGENT = `gpus: { driver: none }\nengines:\n  command: { binary: /bin/sh, baseArgs: ['-c', '${ENGINE}'] }\n`;

describe('ctl logs -f', () => {
  let node: ServedNode;
  let ctl: LlmgwProcess;
  afterEach(async () => {
    await ctl.dispose();
    await node.dispose();
  });

  it('goes on where it was when the agent comes back, and ends with the engine', async () => {
    node = await ServedNode.start({ server: SERVER, agent: AGENT });
    const { id } = await node.untilPublished();
    ctl = new LlmgwProcess(['ctl', '--server', node.urls.admin, 'logs', id, '-f', '--tail', '3']);
    const counted = (): number[] => [...ctl.stdout.matchAll(/^count (\d+)$/gm)].map(([, n]) => Number(n));
    const goesOn = async (): Promise<void> => {
      const enough = counted().length + 5;
      await waitFor(() => counted().length >= enough, { deadlineMs: 30_000, what: 'more of the log' });
    };
    await goesOn();
    await node.killAgent();
    await waitFor(() => ctl.stderr.includes('trying again'), { deadlineMs: 30_000, what: 'a word about it' });
    await node.startAgent();
    await goesOn();
    const seen = counted();
    // Neither lost nor twice, also what was printed while nobody was there to send it.
    expect(seen).toEqual(seen.map((_, index) => (seen[0] ?? 0) + index));
    await node.scale('m1', 0);
    expect(await ctl.ended()).toEqual({ code: 0, signal: null });
  });
});
