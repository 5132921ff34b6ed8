import { afterEach, describe, expect, it } from 'vitest';
import { ServerConfig } from '../config/server-config.js';
import { createLogger } from '../shared/logger.js';
import { CountingClock } from '../../test/support/counting-clock.js';
import { eventData } from '../../test/support/http-responses.js';
import { delta, DONE, RouterHarness } from '../../test/support/router-harness.js';
import { RawClient } from '../../test/support/raw-client.js';
import { waitFor } from '../../test/support/wait-for.js';
import { Router } from './router.js';

let harness: RouterHarness;
afterEach(() => harness.stop());

describe('stopping', () => {
  // Closing hung for as long as one kept-alive connection or one stream was open.
  it('closes idle connections at once, lets answers finish, and then is done', async () => {
    harness = await RouterHarness.start();
    const idle = await harness.connect();
    await idle.get('/health');
    await idle.response();
    harness.engine().onRequest(async (_request, wire) => {
      await wire.startStream();
      await wire.chunk(delta('a'));
      await wire.until(() => finishing);
      await wire.chunk(delta('b') + DONE);
      await wire.lastChunk();
    });
    let finishing = false;
    const streaming = await harness.chat({ stream: true });
    await streaming.waitForText('"a"');
    const { port } = harness;
    const closed = harness.router.close(10_000);
    expect(harness.router.ready).toBe(false);
    await idle.waitClosed();
    expect(await RawClient.connect(port).catch(() => 'refused')).toBe('refused');
    finishing = true;
    expect(eventData((await streaming.response()).body).at(-1)).toBe('[DONE]');
    await streaming.waitClosed();
    await closed;
    expect(harness.accessLog().at(-1)).toMatchObject({ outcome: 'ok' });
  });

  it('serves on for the delay, each answer ending its connection, and closes nobody meanwhile', async () => {
    harness = await RouterHarness.start();
    harness.engine().onRequest((_request, wire) => wire.respond(200, '{"ok":1}'));
    const idle = await harness.connect();
    await idle.get('/health');
    await idle.response();
    const silent = await harness.connect();
    const closed = harness.router.close(10_000, 2_000);
    expect(harness.router.ready).toBe(false);
    // A load balancer that has not noticed yet, on a connection of its own and on a kept one.
    const late = await (await harness.chat()).response();
    expect([late.status, late.headers.get('connection')]).toEqual([200, 'close']);
    await idle.get('/health');
    const kept = await idle.response(1);
    expect([kept.status, kept.headers.get('connection')]).toEqual([200, 'close']);
    expect(harness.router.address).toBeDefined();
    // One that never sent anything is not idle to node, and would hold up the end for a minute.
    await silent.waitClosed();
    await closed;
  });

  it('refuses new requests on connections that are still open', async () => {
    harness = await RouterHarness.start();
    harness.engine().onRequest(async (_request, wire) => {
      await wire.startStream();
      await wire.chunk(delta('a'));
      await wire.until(() => finishing);
      await wire.chunk(DONE);
      await wire.lastChunk();
    });
    let finishing = false;
    const client = await harness.chat({ stream: true });
    await client.waitForText('"a"');
    const closed = harness.router.close(10_000);
    // Sent behind the stream on the same connection.
    await client.post('/v1/embeddings', { model: 'm1' });
    finishing = true;
    const second = await client.response(1);
    expect(second.status).toBe(503);
    expect(JSON.parse(second.body.toString())).toMatchObject({ error: { code: 'shutting_down' } });
    expect(second.headers.get('retry-after')).toBeDefined();
    expect(second.headers.get('connection')).toBe('close');
    await closed;
    expect(harness.engine().requests).toHaveLength(1);
  });

  it('ends what is left when the grace is over, each in its own form', async () => {
    harness = await RouterHarness.start({ endpoints: [{ maxConcurrency: 2 }] });
    harness.engine().onNextRequest(async (_request, wire) => {
      await wire.startStream();
      await wire.chunk(delta('a'));
    });
    harness.engine().onRequest((_request, wire) => wire.waitClosed().then(() => undefined));
    const streaming = await harness.chat({ stream: true });
    await streaming.waitForText('"a"');
    const waiting = await harness.chat();
    await harness.engine().request(1);
    const queued = await harness.chat();
    await waitFor(async () => (await harness.metric('llmgw_queue_depth{model="m1"}')) === 1);
    const startedMs = performance.now();
    await harness.router.close(200);
    expect(performance.now() - startedMs).toBeLessThan(1_200);
    const events = eventData((await streaming.response()).body);
    expect(JSON.parse(events.at(-1) ?? '')).toMatchObject({ error: { code: 'shutting_down' } });
    for (const client of [waiting, queued]) {
      const response = await client.response();
      expect(response.status).toBe(503);
      expect(JSON.parse(response.body.toString())).toMatchObject({ error: { code: 'shutting_down' } });
    }
    expect(harness.engine().requests).toHaveLength(2);
    await harness.engine().waitIdle();
  });

  it('in a hurry tells everybody at once, in the middle of the grace, in the form of each API', async () => {
    harness = await RouterHarness.start();
    const beginnings = {
      '/v1/chat/completions': delta('a'),
      '/v1/messages': 'event: message_start\ndata: {"type":"message_start"}\n\n',
      '/v1/responses': 'event: response.created\ndata: {"type":"response.created"}\n\n',
    };
    harness.engine().onRequest(async ({ target }, wire) => {
      if (!(target in beginnings)) return;
      await wire.startStream();
      await wire.chunk(beginnings[target as keyof typeof beginnings]);
    });
    const clients = [];
    for (const [path, beginning] of Object.entries(beginnings)) {
      const client = await harness.post(path, { model: 'm1', stream: true });
      await client.waitForText(beginning);
      clients.push(client);
    }
    const whole = await harness.post('/v1/embeddings', { model: 'm1' });
    await harness.engine().request(3);
    const closed = harness.router.close(60_000);
    await harness.router.endNow();
    const [chat, messages, responses] = clients.map((client) => client.text);
    expect(chat).toMatch(/\ndata: \{"error":\{[^\n]*"code":"shutting_down"\}\}\n\n\r\n0\r\n\r\n$/);
    expect(messages).toMatch(/event: error\ndata: \{"type":"error","error":\{"type":"overloaded_error"/);
    expect(responses).toMatch(/event: error\ndata: \{"type":"error","code":"shutting_down"/);
    expect((await whole.response()).status).toBe(503);
    await closed;
    await harness.engine().waitIdle();
  });

  // A timer of the end outlived it, where the end had to wait for a request.
  it.each([0, 1])('leaves no timer behind with %i requests cut at the end', async (requests) => {
    const clock = new CountingClock();
    harness = await RouterHarness.start({ clock });
    for (let n = 0; n < requests; n++) {
      await harness.chat();
      await harness.engine().request(n);
    }
    await harness.router.close(0);
    expect(clock.live.size).toBe(0);
  });

  it('needs no grace when nothing runs', async () => {
    harness = await RouterHarness.start();
    const startedMs = performance.now();
    await harness.router.close(60_000);
    expect(performance.now() - startedMs).toBeLessThan(2_000);
  });

  it('says which address it cannot listen on', async () => {
    harness = await RouterHarness.start();
    const logger = createLogger({ level: 'error', format: 'json' });
    const other = new Router({ config: new ServerConfig(), logger });
    await expect(other.listen(`127.0.0.1:${harness.port}`)).rejects.toThrow(
      new RegExp(`cannot listen on 127\\.0\\.0\\.1:${harness.port}: .*EADDRINUSE`),
    );
    await other.close(0);
  });
});

describe('taking an endpoint away', () => {
  const table = (version: number, port: number | undefined, generation = 1) => ({
    version,
    models: [
      {
        name: 'm1',
        aliases: [],
        routingProfile: 'interactive',
        fallback: [],
        desired: 1,
        outlook: 'ready' as const,
      },
    ],
    endpoints:
      port === undefined
        ? []
        : [
            {
              id: 'r1',
              generation,
              protocol: 'http' as const,
              host: '127.0.0.1',
              port,
              basePath: '',
              models: ['m1'],
              pool: 'p',
              weight: 1,
              engine: 'sim' as const,
            },
          ],
  });

  it('sends nothing more there, but counts what runs until it ends', async () => {
    harness = await RouterHarness.start({ configure: (config) => (config.endpoints = []) });
    harness.engine().onRequest(async (_request, wire) => {
      await wire.startStream();
      await wire.chunk(delta('a'));
      await wire.until(() => finishing);
      await wire.chunk(DONE);
      await wire.lastChunk();
    });
    let finishing = false;
    harness.router.applyTable(table(1, harness.engine().port));
    const client = await harness.chat({ stream: true });
    await client.waitForText('"a"');
    harness.router.applyTable(table(2, undefined));
    expect(harness.router.inflight().get('r1@1')).toBe(1);
    const refused = await (await harness.chat()).response();
    expect(refused.status).toBe(503);
    // An older table that arrives late changes nothing.
    harness.router.applyTable(table(1, harness.engine().port));
    expect((await (await harness.chat()).response()).status).toBe(503);
    finishing = true;
    expect(eventData((await client.response()).body).at(-1)).toBe('[DONE]');
    await waitFor(() => harness.router.inflight().size === 0);
    expect(harness.engine().requests).toHaveLength(1);
  });

  it('with a grace that is over ends each stream with one event, and tries the others elsewhere', async () => {
    harness = await RouterHarness.start({ engines: 2, configure: (config) => (config.endpoints = []) });
    harness.engine(0).onNextRequest(async (_request, wire) => {
      await wire.startStream();
      await wire.chunk(delta('a'));
    });
    harness.engine(0).onRequest((_request, wire) => wire.waitClosed().then(() => undefined));
    harness.engine(1).onRequest((_request, wire) => wire.respond(200, '{"second":1}'));
    harness.router.applyTable(table(1, harness.engine(0).port));
    const streaming = await harness.chat({ stream: true });
    await streaming.waitForText('"a"');
    const waiting = await harness.chat();
    await harness.engine(0).request(1);
    harness.router.applyTable(table(2, harness.engine(1).port, 2));
    expect(harness.router.inflight().get('r1@1')).toBe(2);
    expect(harness.router.abortInflight('r1', 1, 'shutting_down')).toBe(2);
    const events = eventData((await streaming.response()).body);
    expect(JSON.parse(events.at(-1) ?? '')).toMatchObject({ error: { code: 'shutting_down' } });
    expect((await waiting.response()).body.toString()).toBe('{"second":1}');
    await harness.engine(0).waitIdle();
  });

  it('while one is on its way lets requests wait for it', async () => {
    harness = await RouterHarness.start({ configure: (config) => (config.endpoints = []) });
    harness.engine().onRequest((_request, wire) => wire.respond(200, '{"ok":1}'));
    const coming = table(1, undefined);
    harness.router.applyTable({
      ...coming,
      models: coming.models.map((model) => ({
        ...model,
        outlook: 'coming' as const,
        expectedReadyMs: 30_000,
      })),
    });
    const client = await harness.chat();
    await waitFor(async () => (await harness.metric('llmgw_queue_depth{model="m1"}')) === 1);
    harness.router.applyTable(table(2, harness.engine().port));
    expect((await client.response()).body.toString()).toBe('{"ok":1}');
  });
});
