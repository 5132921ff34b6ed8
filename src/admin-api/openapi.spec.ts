import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ControlServer, simModel } from '../../test/support/control-server.js';
import { testGpu } from '../../test/support/fake-agent.js';
import { schemaProblems } from '../../test/support/json-schema.js';
import { waitFor } from '../../test/support/wait-for.js';
import { declaredRoutes, type DeclaredRoute } from './openapi.js';
import { OpenApiController } from './openapi.controller.js';
import { VIEW_SCHEMAS } from './view-schemas.js';

describe('the API document', () => {
  let server: ControlServer;
  // oxlint-disable-next-line typescript/no-explicit-any -- the document as JSON
  let document: any;
  let routes: readonly DeclaredRoute[];

  beforeAll(async () => {
    server = await ControlServer.start({ models: [simModel('m1')] });
    await server.join('n1', { gpus: [testGpu('GPU-a')] });
    await waitFor(async () => (await server.admin('models/m1')).json.ready === 1);
    document = (await server.admin('openapi.json')).json;
    const controller = server.server.app.get(OpenApiController, { strict: false });
    routes = declaredRoutes((controller as unknown as { controllers(): [] }).controllers());
  });
  afterAll(() => server.dispose());

  it('is behind no type: the schemas are written from them', { timeout: 90_000 }, async () => {
    const path = join(import.meta.dirname, '../../scripts/view-schemas.mjs');
    const script = (await import(path)) as { readonly generateViewSchemas: () => Promise<string> };
    const written = readFileSync(join(import.meta.dirname, 'view-schemas.ts'), 'utf8');
    expect(
      written === (await script.generateViewSchemas()),
      'view-schemas.ts is behind: run `npm run schemas`',
    ).toBe(true);
  });

  it('every route says what role it needs; a forgotten one would be closed to all, never open', () => {
    const http = routes.filter((route) => route.handler !== 'AgentGatewayController.connect');
    expect(http.length).toBeGreaterThan(25);
    expect(http.filter((route) => route.role === undefined)).toEqual([]);
    const open = http.filter((route) => route.role === 'open').map((route) => route.path);
    expect(open.toSorted()).toEqual(['/healthz', '/livez', '/readyz']);
    const changing = http.filter((route) => route.method !== 'GET');
    expect(changing.filter((route) => route.role === 'viewer')).toEqual([]);
  });

  it('every route of the API is in it, with its parameters and body', () => {
    const documented = Object.entries(document.paths as Record<string, object>).flatMap(([path, methods]) =>
      Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`),
    );
    const declared = routes
      .filter((route) => route.path.startsWith('/admin/'))
      .map((route) => `${route.method} ${route.path}`);
    expect(documented).toEqual(expect.arrayContaining(declared));
    const schedule = document.paths['/admin/v1/nodes/{id}/scheduling'].put;
    expect(schedule.parameters.map((one: { name: string }) => one.name)).toEqual(['id', 'plan']);
    expect(schedule.requestBody.content['application/json'].schema).toMatchObject({
      required: ['target'],
      properties: { target: { enum: ['schedulable', 'cordoned', 'drained'] }, deadline: { type: 'string' } },
    });
    expect(
      document.paths['/admin/v1/models/{name}/scale'].put.requestBody.content['application/json'].schema,
    ).toEqual({
      type: 'object',
      additionalProperties: false,
      required: ['replicas'],
      properties: { replicas: { type: 'integer', minimum: 0, maximum: 1_000 } },
    });
  });

  it('tells the truth about real answers', async () => {
    const [replica] = (await server.admin('replicas')).json.items;
    const ids: Readonly<Record<string, string>> = {
      '/admin/v1/nodes/{id}': 'n1',
      '/admin/v1/models/{name}': 'm1',
      '/admin/v1/replicas/{id}': replica.id,
      '/admin/v1/placements/{model}/explain': 'm1',
      '/admin/v1/requests/{id}/explain': 'asked',
    };
    // Whatever becomes of it: the candidates that were weighed are what is looked at.
    await fetch(`http://${server.server.addresses.client}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-request-id': 'asked' },
      body: JSON.stringify({ model: 'm1', messages: [] }),
    }).then((response) => response.text());
    let checked = 0;
    for (const [path, methods] of Object.entries(document.paths as Record<string, Record<string, never>>)) {
      const answer = (methods['get'] as { responses?: Record<string, { content: never }> } | undefined)
        ?.responses?.['200'];
      const schema = (answer?.content as Record<string, { schema: object }> | undefined)?.['application/json']
        ?.schema;
      const url = path.replace(/\{\w+\}/, () => ids[path] ?? 'none');
      // A snapshot of the heap is some hundred MiB here, and a profile takes ten seconds.
      if (schema === undefined || url.includes('none') || url.includes('/pprof/')) continue;
      const { json, status } = await server.admin(url);
      expect(status, url).toBe(200);
      expect(schemaProblems(json, schema, VIEW_SCHEMAS), url).toEqual([]);
      checked += 1;
    }
    expect(checked).toBeGreaterThanOrEqual(15);
    const plan = await server.admin('nodes/n1/scheduling?plan=true', {
      method: 'PUT',
      body: { target: 'drained' },
    });
    expect(schemaProblems(plan.json, VIEW_SCHEMAS['SchedulingResultView'] ?? {}, VIEW_SCHEMAS)).toEqual([]);
    const error = await server.admin('nodes/none');
    expect(schemaProblems(error.json, VIEW_SCHEMAS['ErrorView'] ?? {}, VIEW_SCHEMAS)).toEqual([]);
  });
});
