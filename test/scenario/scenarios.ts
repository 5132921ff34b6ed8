import { PlacementConfig, type ModelConfig, type ProfileConfig } from '../../src/config/server-config.js';
import { simModel } from '../support/control-server.js';
import { GIB, ScriptedCluster, h100, type ScriptedNode } from './scripted-cluster.js';

/** A scripted cluster and what is asked of it. */
export interface Scenario {
  readonly name: string;
  readonly start: () => Promise<ScriptedCluster>;
  /** Command lines behind `llmgw ctl`, in order; they may change the cluster. */
  readonly commands: (cluster: ScriptedCluster) => Promise<readonly string[]>;
  /** Beginnings of those that are shown as JSON too. */
  readonly json?: readonly string[];
}

const qwen = (change: Partial<ModelConfig> = {}, profile: Partial<ProfileConfig> = {}): ModelConfig =>
  simModel(
    'qwen',
    { aliases: ['default'], source: 'Qwen/Qwen3-32B', replicas: 2, ...change },
    { name: 'h100', gpus: 1, gpuMemory: 40 * GIB, gpuType: 'H100*', maxConcurrency: 64, ...profile },
  );

const TWO_NODES: readonly ScriptedNode[] = [
  { id: 'n1', gpus: [h100('GPU-11'), h100('GPU-12')], labels: { zone: 'a', rack: 'r1' } },
  { id: 'n2', gpus: [h100('GPU-21')], labels: { zone: 'b' } },
];

const SPREAD = Object.assign(new PlacementConfig(), { strategy: 'spread' });

const LISTS = ['status', 'nodes', 'gpus', 'models', 'replicas', 'endpoints', 'events'];

const replicaIds = async (cluster: ScriptedCluster): Promise<string[]> => {
  const { items } = (await cluster.get('replicas')) as { items: { id: string }[] };
  return items.map(({ id }) => id).sort();
};

/** The usual questions, with the first replica looked at. */
async function everything(cluster: ScriptedCluster, model = 'qwen'): Promise<string[]> {
  const [first] = await replicaIds(cluster);
  return [
    ...LISTS,
    'top',
    'node n1',
    `model ${model}`,
    ...(first === undefined ? [] : [`replica ${first}`, `explain-placement ${model} --replica ${first}`]),
    `explain-placement ${model}`,
  ];
}

async function healthy(): Promise<ScriptedCluster> {
  const models = [qwen({ placement: SPREAD }), simModel('tiny', {}, { name: 'cpu' })];
  const cluster = await ScriptedCluster.start({ models }, TWO_NODES);
  await cluster.place();
  await cluster.ready();
  await cluster.pass(3_600_000);
  return cluster;
}

/** What the healthy one would do with a file in which a model is changed, one is gone and a setting is new. */
async function withNewFile(cluster: ScriptedCluster): Promise<string[]> {
  const file = cluster.file(
    'llmgw.yaml',
    `listen: 127.0.0.1:0
adminListen: 127.0.0.1:0
agentListen: 127.0.0.1:0
stateDir: ${cluster.server.config.stateDir}
shutdownGrace: 1s
control: { interval: 100ms, settleAfterStart: 0s }
models:
  - name: qwen
    aliases: [default]
    source: Qwen/Qwen3-32B
    replicas: 2
    placement: { strategy: spread }
    routing: careful
    profiles:
      - name: h100
        engine: sim
        gpus: 1
        gpuMemory: 40GiB
        gpuType: "H100*"
        maxConcurrency: 64
        args: ["--slots", "8"]
router:
  profiles:
    careful: { queue: { max: 20 } }
`,
  );
  return [`plan -f ${file}`];
}

const OUT_OF_MEMORY = {
  phase: 'exited',
  exitCode: 1,
  verdict: 'outOfMemory',
  message: 'the engine ran out of GPU memory',
  logTail: 'loading weights\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB\n',
} as const;

export const SCENARIOS: readonly Scenario[] = [
  {
    name: 'healthy',
    start: healthy,
    commands: async (cluster) => [
      ...(await everything(cluster)),
      ...(await withNewFile(cluster)),
      'keys create --name ci --models qwen --rpm 60 --tpm 100000',
      'keys list',
      'tokens list',
      'config reload',
      'scale tiny 2',
      'cordon n2 --reason fan',
      'nodes',
      'uncordon n2',
      'version',
    ],
    json: [...LISTS, 'node ', 'model ', 'replica ', 'top', 'plan', 'keys list', 'version'],
  },
  {
    name: 'loading',
    start: async () => {
      const cluster = await ScriptedCluster.start({ models: [qwen({ placement: SPREAD })] }, TWO_NODES);
      await cluster.place();
      const [first, second] = cluster.shards();
      await cluster.set(first!.shardId, { phase: 'ready', loadMs: 4_000 });
      await cluster.set(second!.shardId, { phase: 'downloading', progress: 'downloading 3.1 of 18.4 GiB' });
      await cluster.pass(30_000);
      return cluster;
    },
    commands: (cluster) => everything(cluster),
    json: ['model '],
  },
  {
    name: 'crash-loop',
    start: async () => {
      const cluster = await ScriptedCluster.start({ models: [qwen({ replicas: 1 })] }, TWO_NODES);
      await cluster.place();
      for (const waitMs of [20_000, 40_000, 1_000]) {
        for (const { shardId } of cluster.shards()) await cluster.set(shardId, OUT_OF_MEMORY);
        await cluster.quiet();
        await cluster.pass(waitMs);
      }
      return cluster;
    },
    commands: (cluster) => everything(cluster),
    json: ['replica ', 'events'],
  },
  {
    name: 'unreachable',
    start: async () => {
      const cluster = await ScriptedCluster.start({ models: [qwen({ placement: SPREAD })] }, TWO_NODES);
      await cluster.place();
      await cluster.ready();
      cluster.agents.get('n2')?.leave();
      await cluster.until(
        'the end of its stream',
        async () => cluster.agents.get('n2')?.status !== undefined,
      );
      for (let step = 0; step < 8; step += 1) await cluster.pass(4_000);
      return cluster;
    },
    commands: async (cluster) => [...(await everything(cluster)), 'node n2'],
    json: ['nodes', 'status'],
  },
  {
    name: 'draining',
    start: healthy,
    commands: async (cluster) => [
      'drain n1 --plan',
      'drain n2 --plan',
      'drain n2 --reason fan',
      ...(await everything(cluster)),
      'node n2',
      'drain n2 --plan',
      'drain n2',
      'uncordon n2',
      'replicas',
    ],
    json: ['drain n2 --plan', 'node n2'],
  },
  {
    name: 'no-room',
    start: async () => {
      const gpus = [
        h100('GPU-11', {
          memoryUsedBytes: 61 * GIB,
          foreign: [{ pid: 4711, name: 'python3', memoryBytes: 61 * GIB }],
        }),
        h100('GPU-12', {
          health: { state: 'excluded', reason: 'xid_79', evidence: 'GPU has fallen off the bus' },
        }),
      ];
      const nodes = [
        { id: 'n1', gpus },
        { id: 'n2', gpus: [h100('GPU-21', { type: 'L4' })] },
      ];
      const cluster = await ScriptedCluster.start({ models: [qwen()] }, nodes);
      await cluster.want();
      return cluster;
    },
    commands: (cluster) => everything(cluster),
    json: ['explain-placement qwen', 'status'],
  },
  {
    name: 'gang',
    start: async () => {
      const models = [qwen({ replicas: 1 }, { shards: 2, gpuMemory: 70 * GIB })];
      const cluster = await ScriptedCluster.start({ models }, TWO_NODES);
      await cluster.place();
      await cluster.ready();
      return cluster;
    },
    commands: async (cluster) => [...(await everything(cluster)), 'drain n2 --plan', 'drain n2'],
    json: ['replica '],
  },
  {
    name: 'router-only',
    start: async () => {
      const cluster = await ScriptedCluster.routing([
        { id: 'e1', models: ['qwen'], firstTokenMs: 180 },
        { id: 'e2', models: ['qwen', 'bge'], firstTokenMs: 220, weight: 0 },
      ]);
      await cluster.ask('req-1', 'qwen');
      return cluster;
    },
    commands: async () => [
      ...['status', 'models', 'model bge', 'endpoints', 'events', 'top', 'explain-request req-1'],
      ...['explain-request req-2', 'nodes', 'drain n1', 'scale qwen 2', 'version'],
    ],
    json: ['status', 'models', 'endpoints'],
  },
  {
    name: 'empty',
    start: async () => {
      const cluster = await ScriptedCluster.start({ models: [qwen()] });
      await cluster.want();
      return cluster;
    },
    commands: async () => [
      ...LISTS,
      'top',
      'model qwen',
      'explain-placement qwen',
      'node n1',
      'model qwn',
      'keys list',
      'tokens list',
      'drain n1 --plan',
      'logs qwen',
    ],
    json: ['models', 'explain-placement'],
  },
];
