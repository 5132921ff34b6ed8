import { afterEach, describe, expect, it } from 'vitest';
import { eventData } from '../../test/support/http-responses.js';
import { delta, DONE, finish, RouterHarness, sse } from '../../test/support/router-harness.js';

let harness: RouterHarness;
afterEach(() => harness.stop());

const USAGE = { prompt_tokens: 11, completion_tokens: 3, prompt_tokens_details: { cached_tokens: 4 } };
const usageChunk = sse({ id: 'c', choices: [], usage: USAGE });
const withNull = sse({ id: 'c', choices: [{ delta: { content: 'n' } }], usage: null });

/** Adds the usage chunk when asked, as engines do. */
function engineWithUsage(): void {
  harness.engine().onRequest(async (request, wire) => {
    const asked = /"include_usage"\s*:\s*true/.test(request.body.toString());
    await wire.startStream();
    await wire.chunk(delta('a') + (asked ? withNull : ''));
    await wire.chunk(finish() + (asked ? usageChunk : '') + DONE);
    await wire.lastChunk();
  });
}

describe('usage of streams', () => {
  // Asked for by a gateway for its own counting, the usage chunk reached clients that did not expect one without
  // choices, an explicit "no" was overridden, or other stream options were lost.
  it('reaches those who asked, byte for byte, and nobody else; it is counted for all', async () => {
    harness = await RouterHarness.start();
    engineWithUsage();
    const bare = delta('a') + sse({ id: 'c', choices: [{ delta: { content: 'n' } }] }) + finish() + DONE;
    const full = delta('a') + withNull + finish() + usageChunk + DONE;
    const cases: [unknown, string][] = [
      [undefined, bare],
      [{ include_usage: false }, bare],
      [null, bare],
      [{}, bare],
      [{ include_usage: true }, full],
      [{ include_usage: true, continuous_usage_stats: true }, full],
    ];
    for (const [options, expected] of cases) {
      const response = await (await harness.chat({ stream: true, stream_options: options })).response();
      expect([options, response.body.toString()]).toEqual([options, expected]);
    }
    const sent = harness.engine().lastRequest.body.toString();
    expect(sent).toContain('{"include_usage":true,"continuous_usage_stats":true}');
    expect(await harness.metric('llmgw_tokens_total{model="m1",kind="prompt"}')).toBe(66);
    expect(await harness.metric('llmgw_tokens_total{model="m1",kind="completion"}')).toBe(18);
    expect(await harness.metric('llmgw_tokens_total{model="m1",kind="cached"}')).toBe(24);
    expect(harness.accessLog()[0]).toMatchObject({ promptTokens: 11, completionTokens: 3, cachedTokens: 4 });
  });

  it('that an engine does not report is missing, not zero', async () => {
    harness = await RouterHarness.start();
    harness.engine().onRequest(async (_request, wire) => {
      await wire.startStream();
      await wire.chunk(delta('a') + finish() + DONE);
      await wire.lastChunk();
    });
    await (await harness.chat({ stream: true })).response();
    expect(await harness.metric('llmgw_usage_missing_total{model="m1"}')).toBe(1);
    expect(harness.accessLog()[0]).not.toHaveProperty('promptTokens');
  });

  it('is not asked for where the option is not known', async () => {
    harness = await RouterHarness.start();
    harness.engine().onRequest(async (_request, wire) => {
      await wire.startStream();
      await wire.chunk(
        sse({ type: 'message_start', message: { usage: { input_tokens: 5, output_tokens: 1 } } }) +
          `event: message_delta\n${sse({ type: 'message_delta', usage: { output_tokens: 9 } })}` +
          `event: message_stop\n${sse({ type: 'message_stop' })}`,
      );
      await wire.lastChunk();
    });
    const client = await harness.post('/v1/messages', { model: 'm1', stream: true, messages: [] });
    const response = await client.response();
    expect(harness.engine().lastRequest.body.toString()).not.toContain('stream_options');
    expect(response.body.toString()).toContain('"output_tokens":9');
    expect(harness.accessLog()[0]).toMatchObject({ promptTokens: 5, completionTokens: 9 });
  });
});

describe('usage of whole answers', () => {
  it('is read on the side, small and large', async () => {
    harness = await RouterHarness.start();
    for (const pad of [10, 40_000, 300_000]) {
      const body = `{"data":[{"embedding":"${'x'.repeat(pad)}"}],"usage":{"prompt_tokens":7,"total_tokens":7}}`;
      harness.engine().onRequest((_request, wire) => wire.respond(200, body));
      const response = await (await harness.post('/v1/embeddings', { model: 'm1', input: 'x' })).response();
      expect(response.body.toString()).toBe(body);
    }
    expect(await harness.metric('llmgw_tokens_total{model="m1",kind="prompt"}')).toBe(21);
  });
});

describe('times', () => {
  // The first token was measured at the last chunk, at the chunk that only names the role, or not for reasoning.
  it('of the first token begin with the first one of any kind, not with the role or a comment', async () => {
    for (const first of [
      { reasoning_content: 'hm' },
      { tool_calls: [{ index: 0, id: 'x' }] },
      { content: 'c' },
    ]) {
      harness = await RouterHarness.start();
      let tokenAtMs = 0;
      harness.engine().onRequest(async (_request, wire) => {
        await wire.startStream();
        await wire.chunk(sse({ choices: [{ delta: { role: 'assistant', content: '' } }] }));
        await wire.until(() => client.text.includes('assistant'));
        await wire.chunk(': wait\n\n');
        await harness.passed(60);
        tokenAtMs = performance.now();
        await wire.chunk(sse({ choices: [{ delta: first }] }));
        await wire.until(() => client.text.includes(Object.keys(first)[0] ?? ''));
        await wire.chunk(delta('later') + finish() + DONE);
        await wire.lastChunk();
      });
      const client = await harness.chat({ stream: true });
      const sent = await harness.engine().request();
      await client.response();
      const [record] = harness.accessLog() as { firstTokenMs: number; durationMs: number }[];
      expect(record?.firstTokenMs).toBeGreaterThanOrEqual(tokenAtMs - sent.atMs - 5);
      expect(record?.firstTokenMs).toBeLessThan(record?.durationMs ?? 0);
      expect(await harness.metric('llmgw_time_to_first_token_seconds_count{model="m1"}')).toBe(1);
      await harness.stop();
    }
    harness = await RouterHarness.start();
  });

  it('of the first token are not measured on whole answers', async () => {
    harness = await RouterHarness.start();
    harness.engine().onRequest((_request, wire) => wire.respond(200, '{"choices":[{}]}'));
    await (await harness.chat()).response();
    expect(await harness.metric('llmgw_time_to_first_token_seconds_count{model="m1"}')).toBe(0);
    expect(
      await harness.metric('llmgw_request_duration_seconds_count{model="m1",route="/v1/chat/completions"}'),
    ).toBe(1);
    expect(await harness.metrics()).toContain('le="600"');
  });
});

describe('bytes of streams', () => {
  // Proxies that parse and build chunks anew changed tool calls until clients could not put them together.
  const strange = [
    sse(
      '{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\\"a\\":\\"\\\\u00"}}]}}]}',
    ),
    sse(
      '{"choices":[{"delta":{"tool_calls":[{"index":1,"function":{"arguments":"e9\\"}"}},{"function":{}}]}}],"x_vendor":1}',
    ),
    ': a comment\n\n',
    'event: named\r\nid: 7\r\ndata: {"choices":[{"delta":{"reasoning_content":"h\u00e9\ud83d\ude00"}}]}\r\n\r\n',
    'data:{"no":"blank","choices":[{"delta":{}}]}\n\n',
    'data: line one\ndata: line two\n\n',
    `data: {"choices":[{"delta":{"content":"${'z'.repeat(300_000)}"}}]}\n\n`,
    finish(),
    DONE,
  ].join('');

  it('are the engine’s, in whatever pieces they come', async () => {
    const pieces: ((text: string) => (string | Uint8Array)[])[] = [
      (text) => [text],
      (text) => text.match(/[^]{1,70000}/g) ?? [],
      (text) => {
        const bytes = Buffer.from(text);
        const cuts: Uint8Array[] = [];
        for (let at = 0; at < bytes.length; at += at < 900 || at > bytes.length - 200 ? 1 : 9_973) {
          const next = at < 900 || at > bytes.length - 200 ? at + 1 : at + 9_973;
          cuts.push(bytes.subarray(at, next));
        }
        return cuts;
      },
    ];
    for (const split of pieces) {
      harness = await RouterHarness.start();
      harness.engine().onRequest(async (_request, wire) => {
        await wire.startStream();
        for (const piece of split(strange)) await wire.chunk(piece);
        await wire.lastChunk();
      });
      for (const options of [{ include_usage: true }, undefined]) {
        const response = await (await harness.chat({ stream: true, stream_options: options })).response();
        expect(response.body.toString()).toBe(strange);
      }
      await harness.stop();
    }
    harness = await RouterHarness.start();
  });

  it('that come together leave together', async () => {
    harness = await RouterHarness.start();
    const many = Array.from({ length: 100 }, (_, i) => delta(String(i))).join('');
    harness.engine().onRequest(async (_request, wire) => {
      await wire.startStream();
      await wire.chunk(many + finish() + DONE);
      await wire.lastChunk();
    });
    const response = await (await harness.chat({ stream: true })).response();
    expect(eventData(response.body)).toHaveLength(102);
    expect(response.chunks.length).toBeLessThanOrEqual(2);
  });

  it('whose end comes too early are not taken for whole', async () => {
    harness = await RouterHarness.start();
    const cases: [string, string, boolean][] = [
      ['/v1/chat/completions', delta('a'), false],
      ['/v1/chat/completions', delta('a') + finish(), true],
      ['/v1/messages', `event: message_start\n${sse({ type: 'message_start' })}`, false],
      ['/v1/responses', `event: response.created\n${sse({ type: 'response.created' })}`, false],
      ['/v1/audio/speech', sse({ type: 'speech.audio.delta', audio: 'x' }), true],
    ];
    for (const [path, events, whole] of cases) {
      harness.engine().onRequest(async (_request, wire) => {
        await wire.startStream();
        await wire.chunk(events);
        await wire.lastChunk();
      });
      const response = await (await harness.post(path, { model: 'm1', stream: true })).response();
      expect(response.body.toString().startsWith(events)).toBe(true);
      expect([path, response.body.toString().includes('upstream_aborted')]).toEqual([path, !whole]);
    }
  });
});

describe('hedging', () => {
  // One replica in a bad moment makes some requests wait long; a second one asked in time answers at once.
  it('asks a second engine when the first keeps silent, and lets the loser go', async () => {
    harness = await RouterHarness.start({ engines: 2, profile: { hedging: { after: 50, budget: 1 } } });
    let asked = 0;
    for (const engine of harness.engines) {
      engine.onRequest(async (_request, wire) => {
        if (asked++ === 0) {
          await wire.waitClosed();
          return;
        }
        await wire.startStream();
        await wire.chunk(delta('fast') + finish() + DONE);
        await wire.lastChunk();
      });
    }
    const response = await (await harness.chat({ stream: true }, { 'x-request-id': 'h1' })).response();
    expect(eventData(response.body)[0]).toContain('fast');
    await harness.settle();
    expect(asked).toBe(2);
    expect(harness.router.explainRequest('h1')?.attempts).toMatchObject([
      { kind: 'first', outcome: 'hedge_lost' },
      { kind: 'hedge', outcome: 'ok' },
    ]);
    expect(harness.router.endpoints().every((endpoint) => endpoint.failuresTotal === 0)).toBe(true);
  });

  it('costs no more than its budget', async () => {
    harness = await RouterHarness.start({ engines: 2, profile: { hedging: { after: 20, budget: 0.02 } } });
    let open = false;
    for (const engine of harness.engines) {
      engine.onRequest(async (_request, wire) => {
        await wire.until(() => open);
        await wire.respond(200, '{"x":1}');
      });
    }
    const clients = await Promise.all(Array.from({ length: 120 }, () => harness.chat()));
    await harness.passed(200);
    open = true;
    for (const client of clients) expect((await client.response()).status).toBe(200);
    const asked = harness.engines.reduce((sum, engine) => sum + engine.requests.length, 0);
    expect(asked).toBeGreaterThanOrEqual(121);
    expect(asked).toBeLessThanOrEqual(124);
  });
});
