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
    cell: ({ target, underWay }) => {
      if (target !== undefined)
        return `${target.shards.map(({ nodeId }) => nodeId).join('+')} (${target.profile})`;
      return underWay === true ? 'is leaving' : 'nowhere';
    },
    tone: ({ target, underWay }) => (target === undefined && underWay !== true ? 'bad' : 'good'),
  },
  {
    title: 'READY IN',
    // How long it usually loads says nothing where it cannot.
    cell: ({ target, expectedReadyMs }) => (target === undefined ? undefined : span(expectedReadyMs)),
    right: true,
  },
  {
    title: 'GAP',
    cell: gapText,
    right: true,
    tone: ({ gapMs }) => (gapMs === 0 ? 'good' : 'bad'),
  },
  { title: 'WHY', cell: ({ reason }) => reason.message, shrinks: true },
];

/** Streams of a copy that is stopped first end before its successor can load, so they come on top. */
function gapText({ gapMs, target, inflight, underWay }: DrainMoveView): string {
  if (gapMs === 0) return 'none';
  if (gapMs === undefined && underWay === true) return 'unknown';
  if (gapMs !== undefined) return `${span(gapMs)}${inflight > 0 ? ' + streams' : ''}`;
  return target === undefined ? 'until there is room' : 'unknown';
}

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

/** One thing a drain waits for, with the time left to its bound. */
export interface DrainWait {
  readonly replicaId: string;
  /** The same while nothing moves, so that it is told once. */
  readonly what: string;
  readonly left?: string;
}

/** What a drain waits for now. */
export function drainWaits({ waitingFor }: NodeDetailView['scheduling']): readonly DrainWait[] {
  return waitingFor.map(({ replicaId, reason }) => {
    const leftMs = reason.numbers?.['leftMs'];
    const what = plain(reason.message);
    return leftMs === undefined
      ? { replicaId, what }
      : { replicaId, what, left: `at most ${span(leftMs)} more` };
  });
}

/** One line per replica that is still there. */
export function renderDrainWaits(scheduling: NodeDetailView['scheduling']): string[] {
  return drainWaits(scheduling).map(
    ({ replicaId, what, left }) => `  ${replicaId}: ${what}${left === undefined ? '' : `, ${left}`}`,
  );
}
