import { writeFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { SimEngine } from '../../src/engines/sim/sim-engine.js';
import { ENGINE_ROUTES, type EngineRoute } from '../../src/router/routes.js';
import { FakeEngine } from '../support/fake-engine/fake-engine.js';
import { Scratch, startServerProcess, type LlmgwProcess, type ServerUrls } from '../support/llmgw-process.js';
import { mustHold, waitFor } from '../support/wait-for.js';

const INVENTED = 'invented-by-a-client';
const ERROR_MEMBERS = ['code', 'message', 'param', 'type'];

/** Every metric that is promised, with its labels. */
const PROMISED: Readonly<Record<string, readonly string[]>> = {
  requests_total: ['model', 'route', 'code'],
  request_duration_seconds: ['model', 'route'],
  time_to_first_token_seconds: ['model'],
  inter_token_seconds: ['model'],
  queue_seconds: ['model'],
  queue_depth: ['model'],
  tokens_total: ['model', 'kind'],
  usage_missing_total: ['model'],
  attempts_total: ['model', 'outcome'],
  retries_total: ['model', 'reason'],
  retry_budget_exhausted_total: [],
  ejections_total: ['endpoint'],
  inflight: ['endpoint'],
  endpoint_up: ['endpoint'],
  prefix_predicted_tokens_total: [],
  prefix_delivered_tokens_total: [],
  prefix_index_bytes: [],
  routing_decision_seconds: ['policy'],
  stream_aborted_total: ['reason'],
  config_last_reload_successful: [],
  event_loop_delay_seconds: ['quantile'],
  build_info: ['version', 'node'],
};
/** What only a server with a control plane has. */
const PROMISED_OF_CONTROL = [
  ...['replicas', 'replicas_desired', 'nodes', 'gpus', 'reconcile_duration_seconds'],
  ...['reconcile_last_success_timestamp_seconds', 'plan_actions_total', 'placement_failures_total'],
  ...['shard_restarts_total', 'drain_active', 'agents_connected', 'agent_stream_restarts_total'],
  ...['store_write_seconds', 'certificate_expiry_seconds'],
];

describe('the client API of a server', () => {
  const scratch = new Scratch();
  const sim = new SimEngine({ models: ['m1', 'm2'], seed: 3, tpotMs: 3 });
  let other: FakeEngine;
  let server: LlmgwProcess;
  let urls: ServerUrls;
  let file: string;

  const configuration = (...models: string[]) =>
    JSON.stringify({
      shutdownGrace: '1s',
      endpoints: [
        { id: 'e1', url: sim.url, models: models.filter((name) => name !== 'audio') },
        { id: 'e2', url: other.url, models: ['audio'] },
        // Nobody listens there: what fails first is tried elsewhere.
        { id: 'e3', url: 'http://127.0.0.1:9', models: models.filter((name) => name === 'm2') },
      ].filter(({ models: named }) => named.length > 0),
    });

  beforeAll(async () => {
    await sim.start();
    other = await FakeEngine.listen();
    file = scratch.file('server.yaml', configuration('m1', 'm2'));
    const started = await startServerProcess(scratch, ['--config', file]);
    server = started.process;
    urls = started.urls;
  });
  afterAll(async () => {
    await server?.dispose();
    await sim.stop();
    await other?.close();
    scratch.remove();
  });

  const url = (path: string) => `${urls.client}${path}`;
  const metrics = async () => (await fetch(`${urls.admin}/metrics`)).text();

  const post = (route: EngineRoute, model: string, extra: object = {}) => {
    const headers = { 'user-agent': INVENTED, 'x-request-id': INVENTED };
    if (route.body === 'multipart') {
      const form = new FormData();
      form.set('file', new Blob(['sound']), 'a.wav');
      form.set('model', model);
      return fetch(url(route.path), { method: 'POST', headers, body: form });
    }
    const body = {
      ...{ model, max_tokens: 5, messages: [{ role: 'user', content: 'hi' }], prompt: 'hi', input: 'hi' },
      ...{ query: 'q', documents: ['a', 'b'], text_1: 'a', text_2: 'b', tokens: [1, 2], voice: 'v' },
      ...extra,
    };
    return fetch(url(route.path), {
      method: 'POST',
      headers: { ...headers, 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
  };
  const bySim = (route: EngineRoute) => route.body === 'json';

  it.each(ENGINE_ROUTES.map((route) => [route.path, route] as const))(
    '%s reaches an engine, and refuses in its own form',
    async (path, route) => {
      const response = await post(route, bySim(route) ? 'm1' : 'audio');
      expect(response.status).toBe(200);
      expect(response.headers.get('x-request-id')).toBe(INVENTED);
      expect(response.headers.get('content-type')).not.toBeNull();
      await response.arrayBuffer();

      const unknown = await post(route, INVENTED);
      expect(unknown.status).toBe(404);
      const told = (await unknown.json()) as { type?: string; error: Record<string, unknown> };
      expect(Object.keys(told.error).sort()).toEqual(ERROR_MEMBERS);
      expect(told.error).toMatchObject({ code: 'model_not_found', param: 'model' });
      expect(told.type).toBe(route.dialect === 'anthropic' ? 'error' : undefined);

      const read = await fetch(url(path));
      expect(read.status).toBe(405);
      expect(read.headers.get('allow')).toContain('POST');
      const broken = await fetch(url(path), {
        method: 'POST',
        headers: { 'content-type': 'text/csv' },
        body: 'a,b',
      });
      expect(broken.status).toBe(415);
    },
  );

  it.each(
    ENGINE_ROUTES.filter(
      (route) => route.generates && bySim(route) && /chat|compl|resp|mess/.test(route.path),
    ),
  )('streams $path to its end, counted and without what nobody asked for', async (route) => {
    const text = await (await post(route, 'm1', { stream: true })).text();
    const last = { openai: 'data: [DONE]', responses: '"type":"response.', anthropic: 'message_stop' };
    expect(text.trimEnd().split('\n\n').at(-1)).toContain(last[route.dialect]);
    if (route.dialect === 'openai') expect(text).not.toContain('"usage"');
  });

  it('lists what can be served, and one of them', async () => {
    const { data } = (await (await fetch(url('/v1/models'))).json()) as { data: { id: string }[] };
    expect(data.map(({ id }) => id).sort()).toEqual(['audio', 'm1', 'm2']);
    expect((await fetch(url('/v1/models/m1'))).status).toBe(200);
    expect((await fetch(url('/v1/models/none'))).status).toBe(404);
    for (const path of ['/health', '/v1/models']) {
      const head = await fetch(url(path), { method: 'HEAD' });
      expect([head.status, await head.text()]).toEqual([200, '']);
    }
    for (const path of ['/', '/metrics', '/admin/v1/status', '/v1/load_lora_adapter', `/v1/${INVENTED}`]) {
      const response = await fetch(url(path), { method: 'POST' });
      expect(response.status).toBe(404);
      expect(await response.json()).toMatchObject({ error: { code: 'not_found' } });
    }
  });

  it('explains itself on demand', async () => {
    const route = ENGINE_ROUTES[0] as EngineRoute;
    const response = await fetch(url(route.path), {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-llmgw-explain': '1' },
      body: JSON.stringify({ model: 'm1', max_tokens: 1, messages: [] }),
    });
    await response.arrayBuffer();
    const shown = ['endpoint', 'policy', 'attempts'].map((name) => response.headers.get(`x-llmgw-${name}`));
    expect(shown).toEqual(['e1', 'prefixAware', '1']);
  });

  it('counts it all under the names and labels that are promised, and none that a client made', async () => {
    const [chat] = ENGINE_ROUTES as [EngineRoute];
    // A stream that breaks, and one that is tried again: some series begin with their first event.
    const cut = { messages: [{ role: 'user', content: 'x[[fault:reset-after-events=2]]' }], stream: true };
    await (await post(chat, 'm1', cut)).text();
    let text = '';
    const labelsOf = (name: string) => {
      const lines = [...text.matchAll(new RegExp(`^llmgw_${name}(?:_count)?(?:\\{(.*)\\})? \\S+$`, 'gm'))];
      return lines.map(([, labels = '']) => [...labels.matchAll(/(\w+)="/g)].map(([, label]) => label));
    };
    // A request is counted when it has ended, which may be a moment after its client has the last byte.
    await waitFor(
      async () => {
        // Which of its endpoints is asked first is a lot; one of them is dead, now and then set aside, and tried again.
        const response = await post(chat, 'm2');
        await response.text();
        await mustHold(() => expect(response.status).toBe(200));
        text = await metrics();
        for (const name of Object.keys(PROMISED))
          expect([name, labelsOf(name).length > 0]).toEqual([name, true]);
        expect(text).toContain('llmgw_requests_total{model="m1",route="/v1/chat/completions",code="200"}');
        expect(text).toContain('llmgw_requests_total{model="_unknown",route="other",code="404"}');
        expect(text).toMatch(/llmgw_tokens_total\{model="m1",kind="completion"\} [1-9]/);
        expect(text).toContain('llmgw_stream_aborted_total{reason="upstream_aborted"} 1');
        expect(text).toMatch(/llmgw_retries_total\{model="m2",reason="connect_\w+"\} [1-9]/);
        expect(text).toMatch(/llmgw_inflight\{endpoint="e1"\} 0/);
        return true;
      },
      { deadlineMs: 40_000, what: 'everything to be counted' },
    );
    for (const [name, labels] of Object.entries(PROMISED))
      for (const seen of labelsOf(name)) expect([name, new Set(seen)]).toEqual([name, new Set(labels)]);
    expect(text).not.toContain(INVENTED);
    expect(Buffer.byteLength(text)).toBeLessThan(1_000_000);
  });

  it('forgets the series of what is configured no more', async () => {
    writeFileSync(file, configuration('m1'));
    server.signal('SIGHUP');
    const text = await waitFor(
      async () => {
        const now = await metrics();
        return !now.includes('endpoint="e3"') && !now.includes('model="m2"') && now;
      },
      { deadlineMs: 20_000, what: 'the end of e3 and m2' },
    );
    expect(text).toContain('model="m1"');
    expect(text).toContain('llmgw_config_last_reload_successful 1');
  });
});

describe('a server with a control plane', () => {
  it('has its metrics, too', async () => {
    const scratch = new Scratch();
    const model = { name: 'm1', profiles: [{ name: 'p', engine: 'sim' }] };
    const file = scratch.file('server.yaml', JSON.stringify({ models: [model] }));
    const { process: server, urls } = await startServerProcess(scratch, ['--config', file]);
    const names = await waitFor(
      async () => {
        const text = await (await fetch(`${urls.admin}/metrics`)).text();
        return text.includes('llmgw_replicas_desired{model="m1"} 1') ? text : undefined;
      },
      { deadlineMs: 20_000, what: 'the first pass to be counted' },
    );
    for (const name of PROMISED_OF_CONTROL) expect(names).toContain(`# TYPE llmgw_${name} `);
    for (const name of Object.keys(PROMISED)) expect(names).toContain(`# TYPE llmgw_${name} `);
    await server.dispose();
    scratch.remove();
  });
});
