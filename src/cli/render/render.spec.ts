import { describe, expect, it } from 'vitest';
import type { ConfigPlanView } from '../../admin-api/views/configuration.js';
import type { KeyView, TokenView } from '../../admin-api/views/credentials.js';
import type { ModelDetailView, ModelTrafficView, PlacementView } from '../../admin-api/views/models.js';
import type {
  GpuView,
  NodeDetailView,
  NodeSummaryView,
  SchedulingResultView,
} from '../../admin-api/views/nodes.js';
import type { EndpointView, ReplicaDetailView, ReplicaSummaryView } from '../../admin-api/views/replicas.js';
import type { StatusView } from '../../admin-api/views/status.js';
import { renderModel, renderNode, renderReplica, renderStatus } from './details.js';
import { renderPlan, renderReload } from './config-changes.js';
import { renderDrainPlan, renderSchedulingResult } from './drain.js';
import { renderPlacement } from './explain-placement.js';
import { renderRequest, type RequestView } from './explain-request.js';
import {
  ENDPOINT_COLUMNS,
  GPU_COLUMNS,
  MODEL_COLUMNS,
  NODE_COLUMNS,
  REPLICA_COLUMNS,
} from './list-columns.js';
import type { Surface } from './style.js';
import { renderTable } from './table.js';
import { renderTop } from './top.js';
import { KEY_COLUMNS, TOKEN_COLUMNS } from './credential-columns.js';

const NOW = Date.parse('2026-03-01T12:00:00.000Z');
const ago = (seconds: number): string => new Date(NOW - seconds * 1_000).toISOString();
const SURFACE: Surface = { colour: false, nowMs: NOW };
const GIB = 1024 ** 3;

const golden = (lines: readonly string[], name: string) =>
  expect(`${lines.join('\n')}\n`).toMatchFileSnapshot(`golden/${name}.golden`);

const schedulable = { target: 'schedulable', state: 'schedulable', sequence: 1, waitingFor: [] } as const;

const N1: NodeSummaryView = {
  id: 'n1',
  state: 'connected',
  stateSince: ago(7_300),
  scheduling: schedulable,
  address: '10.0.0.11',
  hostname: 'gpu-a',
  agentVersion: '0.1.0',
  labels: { zone: 'a', rack: 'r1' },
  engines: [
    { kind: 'vllm', version: '0.11.0' },
    { kind: 'llamacpp', unavailable: 'llama-server is not in PATH' },
  ],
  gpus: { total: 2, healthy: 1, free: 0 },
  replicas: ['qwen-abc'],
  conditions: [],
  lastReportAt: ago(2),
};

const N2: NodeSummaryView = {
  ...N1,
  id: 'n2',
  state: 'unreachable',
  stateReason: 'no report for 31 s',
  stateSince: ago(31),
  scheduling: { ...schedulable, target: 'drained', state: 'draining', actor: 'ops', reason: 'new fan' },
  conditions: [{ type: 'StateDirFull', reason: '1% of the disk is free', blocksPlacement: true }],
  gpus: { total: 0, healthy: 0, free: 0 },
  replicas: [],
};

const GPU: GpuView = {
  uuid: 'GPU-1111',
  nodeId: 'n1',
  type: 'H100 80GB HBM3',
  vendor: 'nvidia',
  busId: '0000:01:00.0',
  memoryTotalBytes: 80 * GIB,
  memoryUsedBytes: 71.3 * GIB,
  health: { state: 'healthy' },
  heldBy: [{ shardId: 'qwen-abc-0', replicaId: 'qwen-abc', model: 'qwen', memoryBytes: 70 * GIB }],
  foreign: [],
  linkedTo: [],
};

const SICK: GpuView = {
  ...GPU,
  uuid: 'GPU-2222',
  memoryUsedBytes: undefined as never,
  health: { state: 'excluded', reason: 'xid_79', evidence: 'GPU has fallen off the bus', sinceWallMs: NOW },
  heldBy: [],
  foreign: [{ pid: 4711, name: 'python3', memoryBytes: 2 * GIB }],
};

const REPLICA: ReplicaSummaryView = {
  id: 'qwen-abc',
  model: 'qwen',
  profile: 'h100',
  engine: 'vllm',
  state: 'ready',
  generation: 3,
  intent: 'run',
  intentReason: { code: 'wanted', message: 'qwen wants 2 replicas' },
  nodes: ['n1'],
  address: '10.0.0.11:20001',
  published: true,
  inflight: 4,
  restarts: 2,
  createdAt: ago(90_000),
  readySince: ago(3_600),
};

const FAILING: ReplicaSummaryView = {
  ...REPLICA,
  id: 'qwen-xyz',
  state: 'backoff',
  reason: { code: 'outOfMemory', message: 'the engine ran out of GPU memory' },
  published: false,
  inflight: 0,
  restarts: 5,
  nextTryAt: new Date(NOW + 42_000).toISOString(),
  intent: 'drain',
  intentReason: { code: 'nodeDrained', message: 'n1 is being drained' },
};

const ENDPOINTS: EndpointView[] = [
  {
    id: 'qwen-abc',
    generation: 3,
    url: 'http://10.0.0.11:20001',
    models: ['qwen'],
    pool: 'managed',
    weight: 1,
    engine: 'vllm',
    state: 'up',
    inflight: 4,
    maxConcurrency: 64,
    outstandingTokens: 5_120,
    requestsTotal: 4_021,
    failuresTotal: 0,
    promptTokensTotal: 2_400_000,
    completionTokensTotal: 401_000,
    cachedTokensTotal: 1_700_000,
    firstTokenP50Ms: 84,
    firstTokenP90Ms: 1_310,
    cachedShare: 0.713,
    engineWaiting: 2,
    nodeId: 'n1',
    lastByteAgeMs: 12,
  },
  {
    id: 'e1',
    generation: 0,
    url: 'https://other.example/llm',
    models: ['m1', 'm2'],
    pool: 'static',
    weight: 0.5,
    engine: 'unknown',
    state: 'ejected',
    reason: '5 failures in a row',
    inflight: 0,
    outstandingTokens: 0,
    requestsTotal: 17,
    failuresTotal: 9,
    promptTokensTotal: 900,
    completionTokensTotal: 80,
    cachedTokensTotal: 0,
  },
];

const TRAFFIC: ModelTrafficView[] = [
  {
    model: 'qwen',
    requestsTotal: 4_040,
    failuresTotal: 12,
    queueDepth: 3,
    promptTokensTotal: 2_400_000,
    completionTokensTotal: 401_000,
    cachedTokensTotal: 1_700_000,
    firstTokenP50Ms: 84,
    firstTokenP90Ms: 1_310,
    cachedShare: 0.713,
  },
];

const STATUS: StatusView = {
  version: '0.1.0',
  mode: 'control',
  now: new Date(NOW).toISOString(),
  startedAt: ago(11_520),
  uptimeMs: 11_520_000,
  pid: 77,
  term: 4,
  addresses: { client: '127.0.0.1:8080', admin: '127.0.0.1:8081', agent: '127.0.0.1:8082' },
  models: { total: 2, ready: 1 },
  replicas: { desired: 3, byState: { ready: 1, backoff: 1 } },
  nodes: { total: 2, byState: { connected: 1, unreachable: 1 } },
  gpus: { total: 2, byHealth: { healthy: 1, excluded: 1 } },
  endpoints: { total: 2, up: 1 },
  requestsInFlight: 4,
  plan: {
    number: 213,
    at: ago(1),
    actions: 1,
    durationMs: 3,
    notDone: [{ subject: 'qwen', reason: { code: 'no_place', message: 'no node has a free H100' } }],
  },
  config: { loadedAt: ago(600), lastError: 'llmgw.yaml:3:1: modles: unknown key' },
  warnings: [{ code: 'node_unreachable', message: 'n2 has been silent for 31 s' }],
};

const PLACEMENT: PlacementView = {
  model: 'qwen',
  at: ago(5),
  basis: 'now',
  desired: 2,
  have: 1,
  conditions: [],
  explanation: {
    model: 'qwen',
    counterfactual: { code: 'free_memory', message: 'fits if 6.2 GiB are freed on n1/GPU-2222' },
    blocked: { code: 'no_place', message: 'no node can take profile h100 or a100' },
    profiles: [
      {
        profile: 'h100',
        fits: false,
        reasons: [],
        nodes: [
          {
            nodeId: 'n2',
            fits: false,
            reasons: [
              { code: 'unreachable', message: 'no report for 31 s' },
              { code: 'drained', message: 'being drained by ops' },
            ],
            gpus: [],
          },
          {
            nodeId: 'n1',
            fits: false,
            reasons: [{ code: 'not_enough_gpus', message: '0 of 1 GPUs fit' }],
            gpus: [
              {
                uuid: 'GPU-1111',
                type: 'H100',
                fits: false,
                reasons: [{ code: 'held', message: 'held by qwen-abc' }],
                memoryFreeBytes: 8.7 * GIB,
                memoryNeededBytes: 70 * GIB,
                heldBy: ['qwen-abc-0'],
              },
              {
                uuid: 'GPU-2222',
                type: 'H100',
                fits: true,
                reasons: [],
                memoryFreeBytes: 78 * GIB,
                memoryNeededBytes: 70 * GIB,
                heldBy: [],
              },
            ],
          },
        ],
      },
      {
        profile: 'a100',
        fits: false,
        reasons: [{ code: 'not_enough_nodes', message: 'needs 2 nodes, 1 fits' }],
        nodes: [],
      },
    ],
  },
};

const CHOSEN: PlacementView = {
  ...PLACEMENT,
  basis: 'decided',
  replicaId: 'qwen-abc',
  have: 2,
  conditions: [],
  explanation: {
    model: 'qwen',
    chosen: {
      profile: 'h100',
      shards: [{ shardId: 's', rank: 0, nodeId: 'n1', gpuUuids: ['GPU-1111'], ports: { http: 1 } }],
      beat: { nodeId: 'n2', byScore: 0.25 },
    },
    profiles: [
      {
        profile: 'h100',
        fits: true,
        reasons: [],
        nodes: [
          { nodeId: 'n2', fits: true, reasons: [], scores: { pack: 0.5, spread: 0.5 }, total: 1, gpus: [] },
          {
            nodeId: 'n1',
            fits: true,
            reasons: [],
            scores: { pack: 0.75, spread: 0.5 },
            total: 1.25,
            gpus: [],
          },
        ],
      },
    ],
  },
};

const REQUEST: RequestView = {
  requestId: 'req-1',
  receivedWallMs: NOW - 8_000,
  route: '/v1/chat/completions',
  model: 'qwen',
  alias: 'default',
  routingProfile: 'interactive',
  stream: true,
  bodyBytes: 2_048,
  estimatedPromptTokens: 512,
  phases: [
    { phase: 'queue', atMs: 1 },
    { phase: 'attempt', atMs: 41 },
    { phase: 'relay', atMs: 380 },
  ],
  choices: [
    {
      atMs: 41,
      policy: 'prefixAware',
      chosen: 'qwen-abc',
      because: 'ranked',
      candidates: [
        {
          endpoint: 'qwen-abc',
          outstandingRequests: 3,
          outstandingTokens: 900,
          predictedCachedTokens: 480,
          costSeconds: 0.0214,
        },
        {
          endpoint: 'e1',
          outstandingRequests: 0,
          outstandingTokens: 0,
          predictedCachedTokens: 0,
          costSeconds: null,
          rejected: 'ejected',
        },
      ],
    },
  ],
  attempts: [
    {
      number: 1,
      endpoint: 'qwen-abc',
      kind: 'first',
      startedMs: 41,
      connectedMs: 42,
      headMs: 60,
      firstEventMs: 380,
      endedMs: 5_200,
      status: 200,
      outcome: 'ok',
    },
  ],
  status: 200,
  usage: { promptTokens: 510, cachedTokens: 480, completionTokens: 96 },
  endedMs: 5_201,
};

describe('what an operator sees', () => {
  it('lists', async () => {
    await golden(renderTable(NODE_COLUMNS, [N1, N2], SURFACE), 'nodes');
    await golden(renderTable(NODE_COLUMNS, [N1, N2], SURFACE, { wide: true }), 'nodes-wide');
    await golden(renderTable(GPU_COLUMNS, [GPU, SICK], SURFACE), 'gpus');
    await golden(renderTable(REPLICA_COLUMNS, [REPLICA, FAILING], SURFACE), 'replicas');
    await golden(renderTable(ENDPOINT_COLUMNS, ENDPOINTS, SURFACE), 'endpoints');
    const model = {
      name: 'qwen',
      aliases: ['default'],
      desired: 2,
      ready: 1,
      byState: { ready: 1, backoff: 1 },
      outlook: 'ready',
      routingProfile: 'interactive',
      staticEndpoints: [],
      conditions: [],
      reason: { code: 'no_place', message: 'no node has a free H100' },
    } as const;
    await golden(renderTable(MODEL_COLUMNS, [model], SURFACE), 'models');
  });

  it('one thing at a time', async () => {
    await golden(renderStatus(STATUS, SURFACE), 'status');
    const node: NodeDetailView = {
      ...N2,
      gpuDevices: [GPU, SICK],
      shards: [],
      portsTaken: [20_005],
      weightsPresent: ['org/qwen'],
      refused: [
        {
          at: ago(60),
          from: '10.0.0.99',
          reason: { code: 'duplicate', message: 'n2 is connected from elsewhere' },
          count: 3,
        },
      ],
    };
    await golden(
      renderNode(
        {
          ...node,
          scheduling: {
            ...node.scheduling,
            waitingFor: [
              { replicaId: 'qwen-abc', reason: { code: 'in_flight', message: '4 requests in flight' } },
            ],
          },
        },
        SURFACE,
      ),
      'node',
    );
    const model: ModelDetailView = {
      name: 'qwen',
      aliases: ['default'],
      source: 'org/qwen',
      desired: 2,
      declared: 1,
      ready: 1,
      byState: {},
      outlook: 'coming',
      expectedReadyMs: 95_000,
      routingProfile: 'interactive',
      staticEndpoints: [],
      conditions: [],
      fallback: ['small'],
      priority: 100,
      profiles: [
        {
          name: 'h100',
          engine: 'vllm',
          shards: 1,
          gpus: 1,
          gpuMemoryBytes: 70 * GIB,
          gpuType: 'H100*',
          args: ['--max-model-len', '32768'],
          env: {},
          startTimeoutMs: 1,
          stopGraceMs: 1,
          weight: 1,
        },
      ],
      replicas: [REPLICA],
      learned: [
        {
          model: 'qwen',
          profile: 'h100',
          gpuType: 'H100',
          memoryPeakBytes: 69 * GIB,
          loadMs: [61_000, 64_000],
        },
      ],
      backoffs: [],
      notDone: [],
    };
    await golden(renderModel(model, SURFACE), 'model');
    const replica: ReplicaDetailView = {
      ...FAILING,
      specDigest: 'd',
      shards: [
        {
          id: 'qwen-xyz-0',
          replicaId: 'qwen-xyz',
          model: 'qwen',
          profile: 'h100',
          generation: 3,
          rank: 0,
          nodeId: 'n1',
          gpuUuids: ['GPU-2222'],
          httpPort: 20_002,
          phase: 'exited',
          phaseAgeMs: 3_000,
          exitCode: 1,
          verdict: 'outOfMemory',
          logTail: 'loading\ntorch.OutOfMemoryError: CUDA out of memory',
          wanted: true,
        },
      ],
    };
    await golden(renderReplica(replica, SURFACE), 'replica');
  });

  it('why', async () => {
    await golden(renderPlacement(PLACEMENT, SURFACE), 'explain-placement-nowhere');
    await golden(renderPlacement(CHOSEN, SURFACE), 'explain-placement-chosen');
    await golden(renderRequest(REQUEST, SURFACE), 'explain-request');
  });

  it('moves', async () => {
    const plan: SchedulingResultView = {
      node: 'n1',
      changed: false,
      scheduling: schedulable,
      gapExpected: true,
      notes: ['watch it with `llmgw ctl node n1 --watch`'],
      moves: [
        {
          replicaId: 'qwen-abc',
          model: 'qwen',
          inflight: 4,
          target: { profile: 'h100', shards: [{ nodeId: 'n3', gpuUuids: ['GPU-3'] }] },
          reason: { code: 'fits', message: 'n3 has room' },
          expectedReadyMs: 62_000,
          gapMs: 0,
        },
        {
          replicaId: 'big-1',
          model: 'big',
          expectedReadyMs: 264,
          inflight: 0,
          reason: { code: 'no_place', message: 'no other node has 8 GPUs' },
        },
      ],
    };
    await golden(renderDrainPlan(plan, SURFACE), 'drain-plan');
    await golden(
      renderSchedulingResult(
        { ...plan, changed: true, scheduling: { ...schedulable, target: 'drained', state: 'draining' } },
        SURFACE,
      ),
      'drain-result',
    );
  });

  it('load', async () => {
    const before = {
      status: { ...STATUS, uptimeMs: STATUS.uptimeMs - 2_000 },
      models: [],
      traffic: TRAFFIC.map((model) => ({ ...model, failuresTotal: model.failuresTotal - 3 })),
      endpoints: ENDPOINTS.map((endpoint) => ({
        ...endpoint,
        requestsTotal: endpoint.requestsTotal - 9,
        completionTokensTotal: endpoint.completionTokensTotal - 80,
      })),
    };
    const now = { status: STATUS, models: [], endpoints: ENDPOINTS, traffic: TRAFFIC };
    await golden(renderTop(now, before, SURFACE), 'top');
  });
});

describe('terminals', () => {
  it('fits a table into the columns there are, and leaves wide output alone', () => {
    const narrow: Surface = { ...SURFACE, columns: 90 };
    const table = renderTable(REPLICA_COLUMNS, [REPLICA, FAILING], narrow);
    for (const line of table) expect(line.length).toBeLessThanOrEqual(90);
    expect(table.join('\n')).toContain('…');
    expect(renderTable(REPLICA_COLUMNS, [FAILING], narrow, { wide: true })[1]!.length).toBeGreaterThan(90);
  });

  it('colours states only where asked to', () => {
    const coloured = renderTable(REPLICA_COLUMNS, [FAILING], { ...SURFACE, colour: true }).join('\n');
    expect(coloured).toContain('\u001b[31mbackoff\u001b[39m');
    expect(renderTable(REPLICA_COLUMNS, [FAILING], SURFACE).join('\n')).not.toContain('\u001b');
  });

  // What an engine or an agent writes is not trusted: an escape sequence in it must not reach the terminal.
  it('passes on no control characters of others', () => {
    const hostile = '\u001b[2J\u001b]0;owned\u0007x\r\ny\u202e';
    const lines = [
      ...renderTable(REPLICA_COLUMNS, [{ ...FAILING, progress: hostile }], SURFACE),
      ...renderNode(
        {
          ...N1,
          stateReason: hostile,
          gpuDevices: [{ ...GPU, type: hostile }],
          shards: [],
          portsTaken: [],
          weightsPresent: [],
        },
        SURFACE,
      ),
      ...renderReplica(
        { ...FAILING, specDigest: '', shards: [], backoff: { lastLogTail: hostile } as never },
        SURFACE,
      ),
      ...renderPlacement(
        {
          ...PLACEMENT,
          explanation: { ...PLACEMENT.explanation, blocked: { code: hostile, message: hostile } },
        },
        SURFACE,
      ),
    ];
    // oxlint-disable-next-line no-control-regex -- control characters are what it looks for
    for (const line of lines) expect(line).not.toMatch(/[\u0000-\u001f\u007f-\u009f\u202e]/);
  });
});

describe('what a configuration changes', () => {
  const changes = {
    models: [
      {
        model: 'qwen',
        kind: 'changed' as const,
        changes: [
          {
            path: 'profiles[h100].args',
            before: '["--max-model-len","32768"]',
            after: '["--max-model-len","65536"]',
          },
          { path: 'routing', after: '"batch"' },
        ],
        rolls: ['h100'],
      },
      { model: 'llama', kind: 'removed' as const, changes: [], rolls: ['p'] },
      { model: 'phi', kind: 'added' as const, changes: [], rolls: [] },
    ],
    settings: [
      { path: 'listen', before: '127.0.0.1:8080', after: '0.0.0.0:8080', needsRestart: true },
      { path: 'router.profiles.interactive.queue.max', before: '1000', after: '50', needsRestart: false },
    ],
    needsRestart: ['listen'],
    warnings: [],
  };
  const reason = (message: string) => ({ code: 'profile_changed', message });
  const step = { model: 'qwen', profile: 'h100' };

  it('is told with its steps before it is done', async () => {
    const plan: ConfigPlanView = {
      ...changes,
      changed: true,
      steps: [
        {
          ...step,
          atMs: 0,
          kind: 'starts',
          replica: 'qwen (new 1)',
          nodes: ['n2'],
          replaces: 'qwen-abc',
          reason: reason('qwen/h100 has changed'),
        },
        {
          ...step,
          atMs: 95_000,
          kind: 'serves',
          replica: 'qwen (new 1)',
          nodes: ['n2'],
          reason: reason('Ready'),
        },
        {
          ...step,
          atMs: 105_000,
          kind: 'leaves',
          replica: 'qwen-abc',
          nodes: ['n1'],
          inflight: 7,
          reason: reason('qwen (new 1) is Ready and steady'),
        },
        {
          ...step,
          atMs: 105_001,
          kind: 'stopped',
          replica: 'qwen-abc',
          nodes: ['n1'],
          reason: reason('stopped'),
        },
      ],
      service: [
        { model: 'qwen', now: 2, fewest: 2, gapMs: 0 },
        { model: 'mistral', now: 1, fewest: 0, gapMs: 62_000 },
      ],
      notDone: [
        {
          subject: 'replica/yi-x1',
          reason: { code: 'no_surge', message: 'no room for the new copy beside the old one' },
        },
      ],
      expectedMs: 105_001,
      unmeasured: ['phi/p'],
      cut: false,
      notes: ['nothing was changed; this is what would happen'],
    };
    await golden(renderPlan(plan, SURFACE), 'config-plan');
  });

  it('is told when it is done', async () => {
    await golden(
      renderReload({ ...changes, changed: true, notes: ['needs a restart: listen'] }, SURFACE),
      'config-reload',
    );
  });
});

describe('keys and tokens', () => {
  const made = { createdAt: ago(86_400), createdBy: 'alice' };
  const use = { lastUsedAt: ago(5), inflight: 2, requestsTotal: 812, refusedTotal: 3, tokensTotal: 90_210 };
  const KEYS: readonly KeyView[] = [
    {
      ...made,
      id: 'key-1f0c2a9b77',
      name: 'ci',
      state: 'active',
      models: ['qwen*', 'org/m'],
      requestsPerMinute: 60,
      tokensPerMinute: 100_000,
      maxConcurrent: 4,
      priority: 200,
      expiresAt: ago(-7_300),
      use,
    },
    {
      ...made,
      id: 'key-2b',
      name: 'old\u001b[31m',
      state: 'expired',
      models: [],
      expiresAt: ago(60),
      use: { ...use, inflight: 0 },
    },
    {
      ...made,
      id: 'key-3c',
      name: 'gone',
      state: 'revoked',
      models: [],
      revokedAt: ago(30),
      revokedBy: 'bob',
    },
  ];
  const TOKENS: readonly TokenView[] = [
    { id: 'config:ops', name: 'ops', kind: 'admin', role: 'admin', state: 'active', source: 'configuration' },
    {
      ...made,
      id: 'tok-1',
      name: 'rack',
      kind: 'join',
      state: 'active',
      source: 'store',
      expiresAt: ago(-60),
    },
  ];

  it('lists', async () => {
    await golden(renderTable(KEY_COLUMNS, KEYS, SURFACE), 'keys');
    await golden(renderTable(KEY_COLUMNS, KEYS, SURFACE, { wide: true }), 'keys-wide');
    await golden(renderTable(TOKEN_COLUMNS, TOKENS, SURFACE, { wide: true }), 'tokens-wide');
  });
});
