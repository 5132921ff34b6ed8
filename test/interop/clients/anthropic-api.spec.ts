import type * as Library from '@anthropic-ai/sdk';
import type { Anthropic } from '@anthropic-ai/sdk';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { SimEngine } from '../../../src/engines/sim/sim-engine.js';
import { CLIENT_SECRET } from './adapters/client-kind.js';
import { Gateway } from './gateway.js';
import { describeClients } from './installed.js';
import { ReplayEngine } from './replay-engine.js';
import { errorOf } from './try-log.js';

const messages = [{ role: 'user' as const, content: 'Tell me about messages' }];
const BODY = { model: 'm1', max_tokens: 16, messages };

const withFault = (fault: string) => ({
  ...BODY,
  messages: [{ role: 'user' as const, content: `Tell me[[fault:${fault}]]` }],
});

describeClients('the anthropic library', () => {
  const engine = new SimEngine({ models: ['m1'] });
  let recorded: ReplayEngine;
  let gateway: Gateway;
  let library: typeof Library;
  let client: Anthropic;
  let direct: Anthropic;

  beforeAll(async () => {
    library = await import('@anthropic-ai/sdk');
    await engine.start();
    recorded = await ReplayEngine.start(['recorded']);
    gateway = await Gateway.start([
      { id: 'e1', url: engine.url, models: ['m1'] },
      { id: 'e2', url: recorded.fake.url, models: ['recorded'] },
    ]);
    const options = { apiKey: CLIENT_SECRET, maxRetries: 0 };
    client = new library.Anthropic({ ...options, baseURL: gateway.url });
    direct = new library.Anthropic({ ...options, baseURL: engine.url });
  });
  afterAll(async () => {
    await gateway?.stop();
    await engine.stop();
    await recorded?.stop();
  });

  const reading = async (fault: string) => {
    let name = '';
    for await (const event of await client.messages.create({ ...withFault(fault), stream: true })) {
      name = event.type;
    }
    return name;
  };

  it('counts tokens as the engine does', async () => {
    const { max_tokens: _, ...question } = BODY;
    const counted = await client.messages.countTokens(question);
    expect(counted.input_tokens).toBeGreaterThan(0);
    expect(counted).toEqual(await direct.messages.countTokens(question));
    expect((await client.messages.create(BODY)).usage.input_tokens).toBe(counted.input_tokens);
  });

  it('lists models', async () => {
    const ids: string[] = [];
    for await (const model of client.models.list()) ids.push(model.id);
    expect(ids).toEqual(['m1', 'recorded']);
  });

  it('passes query and versions on as they are, and no credential', async () => {
    const betas = ['context-1m-2025-08-07', 'tools-2024-05-16'];
    const body = { ...BODY, model: 'recorded', betas };
    const answer = await client.beta.messages.create(body, { query: { beta: 'true' } });
    expect(answer.content).toHaveLength(1);
    const [request] = recorded.posts;
    expect(request?.target).toBe('/v1/messages?beta=true');
    expect(request?.headers.get('anthropic-beta')).toBe(betas.join(','));
    expect(request?.headers.get('anthropic-version')).toMatch(/^\d{4}-\d{2}-\d{2}$/);
    expect(request?.headBytes.toString('latin1')).not.toContain(CLIENT_SECRET);
  });

  it('raises the class and type of error that belongs to the status', async () => {
    const unknown = await errorOf(client.messages.create({ ...BODY, model: 'nope' }));
    expect(unknown).toBeInstanceOf(library.NotFoundError);
    expect(unknown).toMatchObject({ status: 404, type: 'not_found_error' });
    const counting = await errorOf(client.messages.countTokens({ model: 'nope', messages }));
    expect(counting).toMatchObject({ status: 404, type: 'not_found_error' });
    const busy = await errorOf(client.messages.create(withFault('retry-after=3')));
    expect(busy).toBeInstanceOf(library.RateLimitError);
    expect(busy).toMatchObject({ status: 429, type: 'rate_limit_error' });
    const full = await errorOf(client.messages.create(withFault('status=503,no room')));
    expect(full).toMatchObject({ status: 503, type: 'overloaded_error' });
    const broken = await errorOf(client.messages.create(withFault('reset-before-headers')));
    expect(broken).toMatchObject({ status: 502, type: 'api_error' });
  });

  it('gets an error event of its own dialect when the engine breaks off, and the engine’s own when it has one', async () => {
    expect(await reading('ignore-disconnect')).toBe('message_stop');
    for (const fault of ['reset-after-events=5', 'clean-cut-after-events=5', 'half-event-then-reset=5']) {
      const error = await errorOf(reading(fault));
      expect(error).toBeInstanceOf(library.APIError);
      expect(error).toMatchObject({ type: 'api_error' });
      expect(error.message).toContain('the engine broke off in the middle of the answer');
    }
    const reported = await errorOf(reading('error-mid=5'));
    expect(reported).toMatchObject({ type: 'api_error' });
    expect(reported.message).toContain('scripted error');
  });
});
