import { afterAll, describe, expect, it } from 'vitest';
import type { ListView } from '../../src/admin-api/views/answers.js';
import type { CreatedKeyView, KeyView } from '../../src/admin-api/views/credentials.js';
import { seededRandom } from '../../src/shared/random.js';
import {
  adminGet,
  type LlmgwProcess,
  Scratch,
  startServerProcess,
  type ServerUrls,
} from '../support/llmgw-process.js';

/** `LLMGW_KILLS=100` goes further; the store by itself is killed a thousand times by `npm run crash`. */
const KILLS = Number(process.env['LLMGW_KILLS'] ?? 4);
/** Changes answered before a server is killed. */
const CHANGES_MAX = 12;
/** Clients that change something at the same time. */
const CLIENTS = 3;

const CONFIG = `
control: { settleAfterStart: 1s }
models:
  - name: m1
    replicas: 1
    profiles: [{ name: sim, engine: sim, gpus: 1 }]
`;

const scratch = new Scratch();
let server: LlmgwProcess | undefined;
afterAll(async () => {
  await server?.dispose();
  scratch.remove();
});

/** Makes keys until the server is gone; notes the id of each whose making was answered. */
async function change(urls: ServerUrls, answered: Set<string>): Promise<void> {
  for (;;) {
    try {
      const response = await fetch(`${urls.admin}/admin/v1/keys`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ name: `key-${answered.size}` }),
      });
      if (response.status !== 201)
        throw new RangeError(`status ${response.status}: ${await response.text()}`);
      answered.add(((await response.json()) as CreatedKeyView).id);
    } catch (error) {
      if (error instanceof RangeError) throw error;
      return;
    }
  }
}

describe('a server killed while it takes changes', () => {
  it(
    'has every one that it answered when it is started again',
    { timeout: 60_000 + KILLS * 10_000 },
    async () => {
      const config = scratch.file('server.yaml', CONFIG);
      const random = seededRandom(11);
      const answered = new Set<string>();
      for (let kill = 0; kill <= KILLS; kill += 1) {
        const started = await startServerProcess(scratch, ['--config', config]);
        server = started.process;
        const kept = (await adminGet<ListView<KeyView>>(started.urls, 'keys')).items.map(({ id }) => id);
        expect(new Set(kept)).toEqual(new Set([...kept, ...answered]));
        const wanted = answered.size + 1 + Math.floor(random() * CHANGES_MAX);
        const clients = Array.from({ length: CLIENTS }, () => change(started.urls, answered));
        const killed = (async () => {
          while (answered.size < wanted) await new Promise((resolve) => setImmediate(resolve));
          started.process.signal('SIGKILL');
        })();
        await Promise.all([killed, ...clients]);
        await started.process.ended();
      }
      expect(answered.size).toBeGreaterThan(KILLS);
    },
  );
});
