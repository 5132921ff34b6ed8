/** A deadline given by hand is a word: the machine goes at that time. What a plan must then say of copies that load for longer. */
import type { ReplicaView } from '../cluster.js';
import { duration } from '../placement/reasons.js';
import type { DrainMove, DrainQuestion } from './plan-drain.js';

/** Whether the model goes on being served by copies that stay. */
export function servedByOthers(
  { replicas }: DrainQuestion,
  { record }: ReplicaView,
  leaving: readonly ReplicaView[],
): boolean {
  const gone = new Set(leaving.map((one) => one.record.id));
  return replicas.some(
    (one) => one.record.model === record.model && one.state === 'ready' && !gone.has(one.record.id),
  );
}

/** The move with the gap between the deadline and the new copy, where nothing else serves meanwhile; else as it was. */
export function withDeadline(
  question: DrainQuestion,
  replica: ReplicaView,
  leaving: readonly ReplicaView[],
  move: DrainMove,
): DrainMove {
  const { deadlineMs } = question.intent;
  const { expectedReadyMs, gapMs, reason } = move;
  const serves = replica.state === 'ready' && replica.record.intent === 'run';
  if (deadlineMs === undefined || expectedReadyMs === undefined || gapMs !== 0 || !serves) return move;
  // The pass that sees it Ready comes on top.
  const lateMs = expectedReadyMs + question.intervalMs - deadlineMs;
  if (lateMs <= 0 || servedByOthers(question, replica, leaving)) return move;
  const message = `${reason.message}; Ready only about ${duration(lateMs)} after the deadline`;
  return { ...move, gapMs: lateMs, reason: { ...reason, message } };
}
