import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { ASK, faulty, Fleet } from './fleet.js';
import { Gateway } from './gateway.js';
import { describeClients } from './installed.js';
import { errorOf, statusOf, TryLog } from './try-log.js';

/** What LangChain does with one error of a kind and a good answer after it. */
const CASES = [
  // It gives up on a 429 without Retry-After; engines send none, so the gateway adds it.
  { name: '429 by an engine that names no time', fault: 'status=429', statuses: [429, 200] },
  { name: '422', fault: 'status=422', statuses: [422, 200] },
  { name: '409', fault: 'status=409', statuses: [409] },
  { name: '400', fault: 'status=400', statuses: [400] },
  { name: '500', fault: 'status=500', statuses: [500, 200] },
  { name: '503 by an engine that names no time', fault: 'status=503', statuses: [503, 200] },
  { name: 'a reset', fault: 'reset-before-headers', statuses: [502, 200] },
] as const;

vi.setConfig({ maxConcurrency: CASES.length });

describeClients('retries of LangChain', () => {
  const fleet = new Fleet();
  let gateway: Gateway;

  beforeAll(async () => {
    for (const index of CASES.keys()) await fleet.add(`m${index}`, 'only');
    gateway = await Gateway.start(fleet.endpoints(), { retries: { budget: '100%' } });
  });
  afterAll(async () => {
    await gateway?.stop();
    await fleet.stop();
  });

  it.concurrent.each(CASES.map((each, index) => ({ ...each, model: `m${index}` })))(
    '$name',
    async ({ fault, statuses, model }) => {
      const { langchain } = await import('./adapters/langchain.js');
      const engine = fleet.get(model);
      engine.setFault(fault, { count: 1 });
      const log = new TryLog();
      const answer = langchain({ gateway: gateway.url, model, fetch: log.fetch }).stream(ASK);
      if (statuses.length === 2) expect((await answer).text).not.toBe('');
      else expect(statusOf(await errorOf(answer))).toBe(statuses[0]);
      expect(log.statuses).toEqual(statuses);
      // Each of its tries is one of the gateway's: nothing multiplies.
      expect(engine.stats().requests).toBe(statuses.length);
      if (statuses[0] === 429 || statuses[0] === 503) {
        expect(Number(log.header('retry-after'))).toBeGreaterThanOrEqual(1);
        expect(Number(log.header('retry-after'))).toBeLessThanOrEqual(60);
      }
    },
  );

  it('does not repeat what failed in the stream', async () => {
    const { langchain } = await import('./adapters/langchain.js');
    const log = new TryLog();
    const client = langchain({ gateway: gateway.url, model: 'm0', fetch: log.fetch });
    await errorOf(client.stream(faulty('error-mid=5')));
    expect(log.statuses).toEqual([200]);
  });
});
