/** One object at a time, for `ctl status`, `node`, `model` and `replica`. */
import type { ModelDetailView } from '../../admin-api/views/models.js';
import type { NodeDetailView } from '../../admin-api/views/nodes.js';
import type { BackoffView, ReplicaDetailView, ShardView } from '../../admin-api/views/replicas.js';
import type { StatusView } from '../../admin-api/views/status.js';
import type { Reason } from '../../domain/cluster.js';
import { renderDrainWaits } from './drain.js';
import { GPU_COLUMNS, REPLICA_COLUMNS, SHARD_COLUMNS } from './list-columns.js';
import { paint, toneOf, type Surface } from './style.js';
import { renderFields, renderTable, type Column } from './table.js';
import { agoSince, bytes, count, labels, plain, plainLines, span, tally, until } from './values.js';

const section = (title: string, lines: readonly string[], surface: Surface): string[] =>
  lines.length === 0 ? [] : ['', paint(title, 'strong', surface), ...lines];

const reasonLine = ({ code, message }: Reason): string => `  ${plain(message)} (${plain(code)})`;

export function renderStatus(status: StatusView, surface: Surface): string[] {
  const { models, endpoints, plan, store, config, addresses } = status;
  const mode =
    status.mode === 'control' ? `control plane and router, term ${status.term ?? '?'}` : 'router only';
  const head = `llmgw ${status.version}, ${mode}, up ${span(status.uptimeMs)}, pid ${status.pid}`;
  const managed = status.mode === 'control';
  const fields = renderFields(
    [
      [
        'Models',
        `${models.ready} of ${models.total} can be served`,
        models.ready === models.total ? 'good' : 'bad',
      ],
      ['Replicas', managed ? wanted(status.replicas.desired, status.replicas.byState) : undefined],
      ['Nodes', managed ? tally(status.nodes.byState) || 'none' : undefined],
      ['GPUs', managed ? tally(status.gpus.byHealth) || 'none' : undefined],
      [
        'Endpoints',
        `${endpoints.up} of ${endpoints.total} up`,
        endpoints.up === endpoints.total ? 'good' : 'busy',
      ],
      ['In flight', count(status.requestsInFlight, 'request')],
      [
        'Last plan',
        plan === undefined
          ? undefined
          : `#${plan.number}, ${agoSince(plan.at, surface.nowMs)}, ${count(plan.actions, 'action')} in ${span(plan.durationMs)}`,
      ],
      ['Plan refused', plan?.refused?.message, 'bad'],
      [
        'Store',
        store === undefined || store.ok ? undefined : `takes no writes: ${store.reason ?? ''}`,
        'bad',
      ],
      ['Configuration', `read ${agoSince(config.loadedAt, surface.nowMs)}`],
      ['Reload refused', config.lastError, 'bad'],
      ['Clients', addresses.client],
      ['Admin', addresses.admin],
      ['Agents', addresses.agent],
      ['Certificates', certificateEnds(status, surface.nowMs)],
    ],
    surface,
  );
  return [
    paint(head, 'strong', surface),
    ...fields,
    ...section('Needs a look', status.warnings.map(reasonLine), surface),
    ...section('Not done, and why', (plan?.notDone ?? []).map(notDoneLine), surface),
  ];
}

function certificateEnds({ certificates }: StatusView, nowMs: number): string | undefined {
  const end = (at: string): string =>
    Date.parse(at) > nowMs ? `ends ${until(at, nowMs)}` : `ended ${agoSince(at, nowMs)}`;
  return certificates?.map(({ listener, endsAt }) => `${listener} ${end(endsAt)}`).join(', ');
}

const notDoneLine = ({ subject, reason }: { subject: string; reason: Reason }): string =>
  `  ${plain(subject)}: ${plain(reason.message)} (${plain(reason.code)})`;

function wanted(desired: number, byState: Readonly<Record<string, number | undefined>>): string {
  const states = tally(byState);
  return `${desired} wanted${states === '' ? '' : `: ${states}`}`;
}

function schedulingText(scheduling: NodeDetailView['scheduling']): string {
  const { actor, reason, state, stateReason, gpuUuid, leftMs } = scheduling;
  const by = [actor, reason].filter((part) => part !== undefined).join(': ');
  const left = leftMs === 0 ? 'past its deadline' : leftMs === undefined ? '' : `${span(leftMs)} left`;
  const notes = [
    stateReason,
    gpuUuid === undefined ? '' : `${gpuUuid} only`,
    left,
    by === '' ? '' : `by ${by}`,
  ];
  const said = notes.filter((note) => note !== undefined && note !== '').join(', ');
  return said === '' ? state : `${state} (${said})`;
}

export function renderNode(node: NodeDetailView, surface: Surface): string[] {
  const { scheduling } = node;
  const fields = renderFields(
    [
      ['Node', node.id],
      [
        'State',
        [node.state, node.stateReason].filter((part) => part !== undefined).join(': '),
        toneOf(node.state),
      ],
      ['Scheduling', schedulingText(scheduling), toneOf(scheduling.state)],
      ['Address', node.address],
      ['Host name', node.hostname],
      ['Labels', labels(node.labels)],
      ['Agent', node.agentVersion],
      [
        'Last report',
        node.lastReportAt === undefined ? undefined : agoSince(node.lastReportAt, surface.nowMs),
      ],
      ['Engines', node.engines.map(engineText).join(', ')],
      ['Weights here', node.weightsPresent.join(', ')],
      ['Ports taken', node.portsTaken.join(', ')],
    ],
    surface,
  );
  return [
    ...fields,
    ...section(
      'Conditions',
      node.conditions.map(
        (condition) =>
          `  ${condition.type}: ${plain(condition.reason)}${condition.blocksPlacement ? ' (nothing new is placed here)' : ''}`,
      ),
      surface,
    ),
    ...section('Draining waits for', renderDrainWaits(scheduling), surface),
    ...table(
      'GPUs',
      GPU_COLUMNS.filter(({ title }) => title !== 'NODE'),
      node.gpuDevices,
      surface,
    ),
    ...table(
      'Shards',
      [MODEL_OF_SHARD, ...SHARD_COLUMNS.filter(({ title }) => title !== 'NODE')],
      node.shards,
      surface,
    ),
    ...section(
      'Agents refused under this name',
      (node.refused ?? []).map(
        (refused) =>
          `  ${agoSince(refused.at, surface.nowMs)} from ${plain(refused.from)}: ${plain(refused.reason.message)}${refused.count > 1 ? ` (${refused.count} times)` : ''}`,
      ),
      surface,
    ),
  ];
}

const MODEL_OF_SHARD: Column<ShardView> = { title: 'MODEL', cell: (shard) => shard.model };

function engineText({ kind, version, unavailable }: NodeDetailView['engines'][number]): string {
  if (unavailable !== undefined) return `${kind} (not usable: ${unavailable})`;
  return version === undefined ? kind : `${kind} ${version}`;
}

function table<T>(
  title: string,
  columns: readonly Column<T>[],
  items: readonly T[],
  surface: Surface,
): string[] {
  if (items.length === 0) return [];
  return section(title, renderTable(columns, items, surface, { indent: '  ' }), surface);
}

export function renderModel(model: ModelDetailView, surface: Surface): string[] {
  // Nobody places what only static endpoints serve.
  const placed = model.profiles.length > 0;
  const scaled =
    model.declared === undefined || model.declared === model.desired
      ? ''
      : ` (the file says ${model.declared})`;
  const fields = renderFields(
    [
      ['Model', model.name],
      ['Aliases', model.aliases.join(', ')],
      ['Source', model.source],
      [
        'Replicas',
        placed ? `${model.ready} of ${model.desired} ready${scaled}` : undefined,
        model.ready >= model.desired ? 'good' : 'bad',
      ],
      [
        'Serves',
        model.expectedReadyMs === undefined
          ? model.outlook
          : `${model.outlook}, in about ${span(model.expectedReadyMs)}`,
        toneOf(model.outlook),
      ],
      ['Why', model.reason === undefined ? undefined : `${model.reason.message} (${model.reason.code})`],
      ['Routing', model.routingProfile],
      ['Fallback', model.fallback.join(', ')],
      ['Priority', placed ? model.priority : undefined],
      ['Static', model.staticEndpoints.join(', ')],
    ],
    surface,
  );
  return [
    ...fields,
    ...table('Launch profiles, best first', PROFILE_COLUMNS, model.profiles, surface),
    ...table(
      'Replicas',
      REPLICA_COLUMNS.filter(({ title }) => title !== 'MODEL'),
      model.replicas,
      surface,
    ),
    ...section(
      'Failures not forgotten yet',
      model.backoffs.map(
        (backoff) =>
          `  ${backoff.replicaId} on ${backoff.nodeId}: ${backoff.cause} ${backoff.failures}x, ${afterFailure(backoff, surface)}`,
      ),
      surface,
    ),
    ...section(
      'Measured',
      model.learned.map(
        (fact) =>
          `  ${fact.profile} on ${plain(fact.gpuType)}: peak ${bytes(fact.memoryPeakBytes)} per GPU, loads in ${fact.loadMs.map((ms) => span(ms)).join(', ') || '-'}`,
      ),
      surface,
    ),
    ...section('Holds', model.conditions.map(reasonLine), surface),
    ...section('Not done, and why', model.notDone.map(notDoneLine), surface),
  ];
}

function afterFailure({ permanent, nextTryAt }: BackoffView, { nowMs }: Surface): string {
  if (permanent) return 'waits for an operator or a changed profile';
  return Date.parse(nextTryAt) <= nowMs ? 'may be tried again' : `next try ${until(nextTryAt, nowMs)}`;
}

const PROFILE_COLUMNS: readonly Column<ModelDetailView['profiles'][number]>[] = [
  { title: 'PROFILE', cell: (profile) => profile.name },
  { title: 'ENGINE', cell: (profile) => profile.engine },
  { title: 'SHARDS', cell: (profile) => profile.shards, right: true },
  { title: 'GPUS', cell: (profile) => profile.gpus, right: true },
  { title: 'MEMORY', cell: (profile) => bytes(profile.gpuMemoryBytes), right: true },
  { title: 'TYPE', cell: (profile) => profile.gpuType },
  { title: 'ARGUMENTS', cell: (profile) => profile.args.join(' '), shrinks: true },
];

export function renderReplica(replica: ReplicaDetailView, surface: Surface): string[] {
  const { backoff } = replica;
  const fields = renderFields(
    [
      ['Replica', replica.id],
      [
        'Model',
        `${replica.model}, ${replica.profile === '' ? 'no profile yet' : `profile ${replica.profile}`}${replica.engine === undefined ? '' : `, engine ${replica.engine}`}`,
      ],
      ['State', replica.state, toneOf(replica.state)],
      [
        'Why',
        replica.reason === undefined ? undefined : `${replica.reason.message} (${replica.reason.code})`,
      ],
      ['Progress', replica.progress],
      ['Intent', `${replica.intent}: ${replica.intentReason.message}`],
      [
        'Routed',
        replica.published
          ? `yes, ${count(replica.inflight, 'request')} in flight`
          : `no${replica.inflight > 0 ? `, ${count(replica.inflight, 'request')} still in flight` : ''}`,
      ],
      ['Address', replica.address],
      ['Generation', replica.generation],
      ['Restarts', replica.restarts],
      ['Created', agoSince(replica.createdAt, surface.nowMs)],
      [
        'Ready since',
        replica.readySince === undefined ? undefined : agoSince(replica.readySince, surface.nowMs),
      ],
      ['Replaces', replica.replaces],
      [
        'Next try',
        backoff === undefined || !['backoff', 'failed'].includes(replica.state)
          ? undefined
          : backoff.permanent
            ? 'after the cause is removed'
            : until(backoff.nextTryAt, surface.nowMs),
      ],
      [
        'Last failure',
        backoff === undefined
          ? undefined
          : replica.reason?.code === 'failed'
            ? `${backoff.failures}x this one on ${backoff.nodeId}`
            : `${backoff.cause}${backoff.lastMessage === undefined ? '' : `: ${backoff.lastMessage}`} (${backoff.failures}x)`,
        'bad',
      ],
    ],
    surface,
  );
  const tail = replica.shards.find((shard) => shard.logTail !== undefined)?.logTail ?? backoff?.lastLogTail;
  return [
    ...fields,
    ...table('Shards', SHARD_COLUMNS, replica.shards, surface),
    ...section('End of the log', tail === undefined ? [] : indented(tail), surface),
  ];
}

const indented = (text: string): string[] =>
  plainLines(text)
    .trimEnd()
    .split('\n')
    .map((line) => `  ${line}`);
