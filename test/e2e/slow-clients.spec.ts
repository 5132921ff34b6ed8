import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { FakeEngine } from '../support/fake-engine/fake-engine.js';
import { Scratch, startServerProcess } from '../support/llmgw-process.js';
import { RawClient } from '../support/raw-client.js';
import { nextTurn, waitFor } from '../support/wait-for.js';

const MIB = 1024 * 1024;
const CLIENTS = 20;
const ANSWER_BYTES = 300 * MIB;

const residentBytes = (pid: number) =>
  Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) * 1024;

// Whoever writes without waiting holds the whole answer of each slow client; whoever waits without looking for the client's
// end waits for ever.
it('twenty clients that do not read cost little memory, and their leaving frees every engine', async () => {
  const engine = await FakeEngine.listen();
  let sent = 0;
  engine.onRequest(async (request, wire) => {
    if (request.method === 'GET') return wire.respond(200, '{}');
    await wire.startStream();
    const event = `data: {"choices":[{"delta":{"content":"${'x'.repeat(64 * 1024)}"}}]}\n\n`;
    for (let bytes = 0; bytes < ANSWER_BYTES && !wire.peerGone; bytes += event.length) {
      await wire.chunk(event);
      sent += event.length;
    }
  });
  const scratch = new Scratch();
  const endpoint = `e1=${engine.url}=m1`;
  const { process: server, urls } = await startServerProcess(scratch, ['--endpoint', endpoint]);
  const before = residentBytes(server.pid);
  const clients = await Promise.all(
    Array.from({ length: CLIENTS }, async () => {
      const client = await RawClient.connect(Number(new URL(urls.client).port));
      await client.post('/v1/chat/completions', { model: 'm1', stream: true, messages: [] });
      await client.waitForText('200 OK');
      client.pause();
      return client;
    }),
  );
  let last = -1;
  await waitFor(
    async () => {
      const stopped = sent === last;
      last = sent;
      for (let turn = 0; turn < 20_000; turn++) await nextTurn();
      return stopped;
    },
    { deadlineMs: 30_000, what: 'the engine to be held' },
  );
  expect(sent).toBeLessThan((CLIENTS * ANSWER_BYTES) / 5);
  expect((residentBytes(server.pid) - before) / CLIENTS / MIB).toBeLessThan(10);
  for (const client of clients) client.destroy();
  await waitFor(() => engine.connections.every(({ requests, closed }) => requests === 0 || closed), {
    deadlineMs: 30_000,
    what: 'the engine to be let go',
  });
  await server.dispose();
  await engine.close();
  scratch.remove();
});
