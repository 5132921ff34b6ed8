import { afterEach, describe, expect, it } from 'vitest';
import { RawClient } from '../../../test/support/raw-client.js';
import { waitFor } from '../../../test/support/wait-for.js';
import { seededRandom } from '../../shared/random.js';
import { DIALECTS } from './options.js';
import { SimEngine } from './sim-engine.js';

const engines: SimEngine[] = [];
afterEach(async () => {
  for (const engine of engines.splice(0)) await engine.stop();
});

const FAULT_CHOICES = [
  '',
  '',
  '',
  'hang',
  'reset-before-headers',
  'headers-then-reset',
  'reset-after-events=3',
  'half-event-then-reset=2',
  'clean-cut-after-events=2',
  'error-first',
  'error-mid=2',
  'stall=2,20',
  'drip=0',
  'one-byte',
  'burst',
  'comments-only=3',
  'ignore-disconnect',
  'no-done;close-after',
  'wrong-content-length=7',
];

const ROUTES = [
  ['/v1/chat/completions', (text: string) => ({ messages: [{ role: 'user', content: text }] })],
  ['/v1/completions', (text: string) => ({ prompt: text })],
  ['/v1/messages', (text: string) => ({ messages: [{ role: 'user', content: text }] })],
  ['/v1/responses', (text: string) => ({ input: text })],
] as const;

/** One client with a random request, a random fault and a random moment to leave. */
async function wander(engine: SimEngine, random: () => number): Promise<void> {
  const pick = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)] as T;
  const [path, body] = pick(ROUTES);
  const fault = pick(FAULT_CHOICES);
  const leaves = random() < 0.5 || fault === 'hang' || fault.startsWith('comments-only');
  const enoughBytes = Math.floor(random() * 1500);
  const client = await RawClient.connect(engine.port);
  const text = `${pick(['a', 'b', 'c'])} `.repeat(Math.floor(random() * 200) + 1);
  const request = {
    model: 'm1',
    stream: random() < 0.7,
    max_tokens: 1 + Math.floor(random() * 12),
    ...body(text),
  };
  await client.post(path, request, fault === '' ? {} : { 'x-sim-fault': fault });
  if (leaves) {
    // Either enough has come, or nothing more will (a hang, a queue): then it leaves after some turns.
    let turns = 20;
    await waitFor(() => client.received.length >= enoughBytes || client.ending !== 'open' || --turns < 0);
    if (random() < 0.5) client.rst();
    else client.destroy();
  } else {
    await waitFor(() => client.ending !== 'open' || client.responses()[0]?.complete === true, {
      deadlineMs: 15_000,
    });
    client.destroy();
  }
}

describe('any mix of requests, faults and leaving clients', () => {
  it.each(DIALECTS.map((dialect, index) => [dialect, index + 1] as const))(
    'leaves nothing behind: %s, seed %i',
    async (dialect, seed) => {
      const engine = new SimEngine({
        models: ['m1'],
        dialect,
        slots: 3,
        maxQueue: 5,
        ttftMs: 1,
        tpotMs: 1,
        prefillMsPerToken: 0.02,
        loadFactor: 2,
        pingMs: 2,
      });
      engines.push(engine);
      await engine.start();
      const random = seededRandom(seed);
      for (let round = 0; round < 5; round++) {
        await Promise.all(Array.from({ length: 12 }, () => wander(engine, random)));
      }
      await waitFor(() => engine.stats().running === 0 && engine.stats().waiting === 0);
      await waitFor(() => engine.stats().openConnections === 0);
      const stats = engine.stats();
      const outcomes = engine.requests().map((record) => record.outcome);
      expect(stats.maxRunning).toBeLessThanOrEqual(3);
      expect(outcomes).not.toContain('running');
      expect(outcomes).toHaveLength(stats.requests);
      // A slot that was lost would show here: the engine still serves three at once.
      const bodies = Array.from({ length: 3 }, () =>
        fetch(`${engine.url}/v1/completions`, {
          method: 'POST',
          body: JSON.stringify({ model: 'm1', prompt: 'x', max_tokens: 2 }),
        }),
      );
      for (const response of await Promise.all(bodies)) expect(response.status).toBe(200);
    },
  );
});
