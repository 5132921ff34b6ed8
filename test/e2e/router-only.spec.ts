import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { SimEngine } from '../../src/engines/sim/sim-engine.js';
import { LlmgwProcess, Scratch, startServerProcess, type ServerUrls } from '../support/llmgw-process.js';

describe('a server with static endpoints only', () => {
  const scratch = new Scratch();
  const engine = new SimEngine({ models: ['m1'], seed: 7 });
  let server: LlmgwProcess;
  let urls: ServerUrls;
  let client: OpenAI;

  beforeAll(async () => {
    const port = await engine.start({ port: 0 });
    const started = await startServerProcess(scratch, ['--endpoint', `e1=http://127.0.0.1:${port}=m1`]);
    server = started.process;
    urls = started.urls;
    client = new OpenAI({ baseURL: `${urls.client}/v1`, apiKey: 'unused', maxRetries: 0 });
  });

  afterAll(async () => {
    await server?.dispose();
    await engine.stop();
    scratch.remove();
  });

  it('answers a chat whole and streamed with the same text', async () => {
    const body = {
      model: 'm1',
      messages: [{ role: 'user' as const, content: 'hello' }],
      max_tokens: 20,
      seed: 1,
    };
    const whole = await client.chat.completions.create(body);
    let streamed = '';
    for await (const chunk of await client.chat.completions.create({ ...body, stream: true })) {
      streamed += chunk.choices[0]?.delta.content ?? '';
    }
    expect(streamed).not.toBe('');
    expect(streamed).toBe(whole.choices[0]?.message.content);
    expect(whole.usage?.prompt_tokens).toBeGreaterThan(0);
  });

  it('lists the model, and names an unknown one in the error', async () => {
    const models = await client.models.list();
    expect(models.data.map((model) => model.id)).toEqual(['m1']);
    const refused = await fetch(`${urls.client}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'nope', messages: [] }),
    });
    expect(refused.status).toBe(404);
    expect(await refused.json()).toMatchObject({ error: { code: 'model_not_found', param: 'model' } });
  });

  it('keeps the three listeners apart', async () => {
    expect((await fetch(`${urls.client}/health`)).status).toBe(200);
    expect((await fetch(`${urls.client}/metrics`)).status).toBe(404);
    expect((await fetch(`${urls.client}/admin/v1/status`)).status).toBe(404);
    expect((await fetch(`${urls.admin}/readyz`)).status).toBe(200);
    const metrics = await (await fetch(`${urls.admin}/metrics`)).text();
    expect(metrics).toContain('llmgw_requests_total');
    expect(metrics).toContain('llmgw_build_info');
    const status = (await (await fetch(`${urls.admin}/admin/v1/status`)).json()) as { mode: string };
    expect(status.mode).toBe('router');
  });

  it('ends on SIGTERM with exit code 0 and leaves no listener', async () => {
    server.signal('SIGTERM');
    expect(await server.ended(10_000)).toEqual({ code: 0, signal: null });
    await expect(fetch(`${urls.client}/health`)).rejects.toThrow();
  });
});

describe('a server that cannot start', () => {
  it('says what is missing when there is nothing to serve', async () => {
    const scratch = new Scratch();
    const server = new LlmgwProcess(['server', '--state-dir', scratch.path('s')], {}, scratch.dir);
    expect(await server.ended()).toEqual({ code: 2, signal: null });
    expect(server.stderr).toContain(
      'nothing to serve: declare models with profiles, or give --endpoint for a router-only run',
    );
    scratch.remove();
  });

  it('repeats a wrong endpoint as it was given', async () => {
    const scratch = new Scratch();
    const server = new LlmgwProcess(['server', '--endpoint', 'e1=http://127.0.0.1:1'], {}, scratch.dir);
    expect(await server.ended()).toEqual({ code: 2, signal: null });
    expect(server.stderr).toContain('--endpoint "e1=http://127.0.0.1:1": expected id=URL=model[,model]');
    scratch.remove();
  });

  it('names the address that is taken, and leaves nothing half open', async () => {
    const scratch = new Scratch();
    const first = await startServerProcess(scratch, ['--endpoint', 'e1=http://127.0.0.1:1=m1']);
    const taken = first.urls.admin.replace('http://', '');
    const second = new LlmgwProcess(
      [
        ...['server', '--listen', '127.0.0.1:0', '--admin-listen', taken],
        ...['--state-dir', scratch.path('other'), '--endpoint', 'e1=http://127.0.0.1:1=m1'],
      ],
      {},
      scratch.dir,
    );
    const exit = await second.ended();
    expect(exit.code).toBe(1);
    expect(second.stderr).toContain(taken);
    await first.process.dispose();
    scratch.remove();
  });
});
