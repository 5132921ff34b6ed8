/** What a drain will do, does, and waits for. */
import type { DrainMoveView, NodeDetailView, SchedulingResultView } from '../../admin-api/views/nodes.js';
import { paint, type Surface } from './style.js';
import { renderTable, type Column } from './table.js';
import { count, plain, span } from './values.js';

const MOVE_COLUMNS: readonly Column<DrainMoveView>[] = [
  { title: 'REPLICA', cell: (move) => move.replicaId },
  { title: 'MODEL', cell: (move) => move.model },
  { title: 'IN FLIGHT', cell: (move) => move.inflight, right: true },
  {
    title: 'GOES TO',
    cell: ({ target }) =>
      target === undefined
        ? 'nowhere'
        : `${target.shards.map(({ nodeId }) => nodeId).join('+')} (${target.profile})`,
    tone: ({ target }) => (target === undefined ? 'bad' : 'good'),
  },
  { title: 'READY IN', cell: (move) => span(move.expectedReadyMs), right: true },
  {
    title: 'GAP',
    cell: ({ gapMs }) => (gapMs === undefined ? undefined : gapMs === 0 ? 'none' : span(gapMs)),
    right: true,
    tone: ({ gapMs }) => (gapMs === undefined ? undefined : gapMs === 0 ? 'good' : 'bad'),
  },
  { title: 'WHY', cell: ({ reason }) => reason.message, shrinks: true },
];

/** The moves of a drain and whether a model would be without a serving replica. */
export function renderDrainPlan(plan: SchedulingResultView, surface: Surface): string[] {
  if (plan.moves.length === 0) return [`nothing runs on ${plain(plan.node)}: draining it moves nothing`];
  const gap = plan.gapExpected
    ? [paint('a model would be without a serving replica for a while', 'bad', surface)]
    : [];
  const streams = plan.moves.reduce((sum, { inflight }) => sum + inflight, 0);
  const takes = plan.expectedMs === undefined ? '' : `, takes about ${span(plan.expectedMs)}`;
  const grace = takes === '' || streams === 0 ? '' : ' and what its streams need';
  return [
    paint(
      `draining ${plain(plan.node)} moves ${count(plan.moves.length, 'replica')}${takes}${grace}`,
      'strong',
      surface,
    ),
    ...renderTable(MOVE_COLUMNS, plan.moves, surface, { indent: '  ' }),
    ...gap,
  ];
}

/** What was done and what to do next. */
export function renderSchedulingResult(result: SchedulingResultView, surface: Surface): string[] {
  const { node, changed, scheduling, notes } = result;
  const state = paint(scheduling.state, scheduling.state === 'schedulable' ? 'good' : 'busy', surface);
  return [
    `${plain(node)}: ${state}${changed ? '' : ' (as before)'}`,
    ...notes.map((note) => `  ${plain(note)}`),
  ];
}

/** One line of progress; the same while nothing moves, so that it is printed once. */
export function drainProgress({ scheduling }: NodeDetailView): string {
  const { waitingFor, state } = scheduling;
  if (waitingFor.length === 0) return state;
  const waits = waitingFor.map(({ replicaId, reason }) => `${replicaId}: ${reason.message}`);
  return plain(`${state}, waits for ${count(waitingFor.length, 'replica')}: ${waits.join('; ')}`);
}
