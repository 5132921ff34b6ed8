import { afterEach, describe, expect, it } from 'vitest';
import { KeyedGateway } from '../../test/support/keyed-gateway.js';
import { RouterHarness } from '../../test/support/router-harness.js';

const LIMIT = 100_000;

describe('what a client asks of its answer', () => {
  let gateway: KeyedGateway;
  afterEach(() => gateway.harness.stop());

  /** Literal JSON, since most of these cannot be written otherwise. */
  const body = (maxTokens: string, extra = '') =>
    `{"model":"m1","messages":[{"role":"user","content":"hi"}],"max_tokens":${maxTokens}${extra}}`;

  /**
   * A limit below 0 made the deadline of the first token lie in the past: whoever sent it had engines taken out, one after
   * the other. It also gave tokens to its key, and took as many away for good when the request ended.
   */
  it.each([
    ['-1'],
    ['-1e12'],
    ['-999999999999999999999999'],
    ['0'],
    ['-0'],
    ['0.5'],
    ['1e12'],
    ['1e400'],
    ['99999999999999999999'],
    ['"100"'],
    ['"-5"'],
    ['null'],
    ['true'],
    ['[]'],
    ['{"a":1}'],
    [`${'9'.repeat(5_000)}`],
  ])('max_tokens %s neither ends its wait nor moves limits by more than what was used', async (maxTokens) => {
    gateway = await KeyedGateway.start(true, { engines: 2 });
    const { harness } = gateway;
    const secret = gateway.key('key-a', { tokensPerMinute: LIMIT });
    let reserved: number[] = [];
    for (const engine of harness.engines) {
      engine.onRequest(async (_request, wire) => {
        const { limiter } = gateway.known('key-a');
        reserved.push(limiter.reservedTokens);
        // Long enough for a deadline that is over already to strike.
        await harness.passed(20);
        await wire.respond(200, '{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3}}');
      });
    }
    for (const extra of ['', ',"max_completion_tokens":-1e12', ',"n":-1e12', ',"n":1e12', ',"n":"x"']) {
      reserved = [];
      const client = await harness.post('/v1/chat/completions', body(maxTokens, extra), {
        authorization: `Bearer ${secret}`,
      });
      const { status, headers } = await client.response();
      expect([maxTokens, extra, status]).toEqual([maxTokens, extra, 200]);
      expect(Number(headers.get('x-ratelimit-remaining-tokens'))).toBeLessThanOrEqual(LIMIT);
      expect(reserved[0]).toBeGreaterThan(0);
      expect(reserved[0]).toBeLessThanOrEqual(128 * 256 + 100);
      await harness.settle();
    }
    const { tokens, limiter } = gateway.known('key-a');
    expect([tokens, limiter.reservedTokens, limiter.concurrent]).toEqual([50, 0, 0]);
    for (const status of harness.router.endpoints()) expect(status.failuresTotal).toBe(0);
  });

  it('each of n answers is held back from the limit', async () => {
    gateway = await KeyedGateway.start(true);
    const secret = gateway.key('key-a', { tokensPerMinute: LIMIT });
    gateway.harness.engine().onRequest((_request, wire) => wire.respond(200, '{"choices":[]}'));
    const remaining = async (extra: Record<string, unknown>) => {
      const { headers } = await (await gateway.chat(secret, { max_tokens: 100, ...extra })).response();
      return LIMIT - Number(headers.get('x-ratelimit-remaining-tokens'));
    };
    const one = await remaining({});
    await gateway.harness.settle();
    const ten = await remaining({ n: 10 });
    expect(ten - one).toBeGreaterThan(850);
    expect(ten - one).toBeLessThan(950);
  });
});

describe('what a prompt is taken for', () => {
  let harness: RouterHarness;
  afterEach(() => harness.stop());

  const estimate = async (path: string, body: Record<string, unknown>, id: string) => {
    await (await harness.post(path, { model: 'm1', ...body }, { 'x-request-id': id })).response();
    return harness.router.explainRequest(id)?.estimatedPromptTokens ?? Number.NaN;
  };

  // A picture of two megabytes was taken for half a million tokens, and its endpoint for the busiest of all.
  it('a picture is a thousand tokens, however large, and text is text', async () => {
    harness = await RouterHarness.start();
    const words = Uint32Array.from({ length: 500_000 }, (_, i) => Math.imul(i + 1, 0x9e3779b1));
    const picture = Buffer.from(words.buffer).toString('base64');
    const content = [
      { type: 'text', text: 'what is this? '.repeat(100) },
      { type: 'image_url', image_url: { url: `data:image/png;base64,${picture}` } },
    ];
    const tokens = await estimate('/v1/chat/completions', { messages: [{ role: 'user', content }] }, 'a');
    expect(tokens).toBeGreaterThan(1_000);
    expect(tokens).toBeLessThan(2_000);
    const text = [{ role: 'user', content: 'what is this? '.repeat(100_000) }];
    expect(await estimate('/v1/chat/completions', { messages: text }, 'b')).toBeGreaterThan(300_000);
  });

  it('instructions of Responses count, and its own limit of the answer', async () => {
    harness = await RouterHarness.start();
    const instructions = 'You know all about rivers. '.repeat(400);
    const tokens = await estimate('/v1/responses', { instructions, input: 'hi', max_output_tokens: 1 }, 'a');
    expect(tokens).toBeGreaterThan(2_000);
  });
});
