/**
 * Waiting after failures. Records are per (replica, node, profile, cause) and stored, so neither a server restart nor a move forgets a
 * crash loop; the wait itself grows with all failures of the replica, wherever they happened, so that a broken model tours the
 * cluster no faster than it would crash in one place.
 */
import {
  type BackoffRecord,
  NODE_VERDICTS,
  PERMANENT_VERDICTS,
  type ReplicaRecord,
  type Verdict,
} from '../cluster.js';
import type { ControlPolicy } from './policy.js';

/** A failure as found in reports, refusals or evidence. */
export interface Failure {
  readonly nodeId: string;
  readonly cause: Verdict;
  readonly message: string;
  readonly logTail?: string;
  readonly exitCode?: number;
  readonly exitSignal?: string;
}

/**
 * A lost race for a port says nothing about the model: the next start takes another port at once. Only when it goes on like that
 * is something else wrong, and then it waits like any failure.
 */
const PORT_RETRIES = 5;
/** Nodes tried one right after the other when each is found unable for a reason of its own; then the tour slows down. */
const NODE_RETRIES = 8;
/** Chance takes off up to this share of a delay, never adds: the cap stays a cap and a doubled delay stays the longer one. */
const JITTER_SHARE = 0.2;

/** The record after one more failure. `known` are all back-offs of the replica. */
export function countFailure(
  record: ReplicaRecord,
  failure: Failure,
  known: readonly BackoffRecord[],
  policy: ControlPolicy,
  nowWallMs: number,
  random: () => number,
): BackoffRecord {
  const same = known.find(
    (one) => one.nodeId === failure.nodeId && one.cause === failure.cause && one.profile === record.profile,
  );
  const permanent = PERMANENT_VERDICTS.has(failure.cause);
  const before = same?.failures ?? 0;
  const failures = failure.cause === 'gpuNotEmpty' ? Math.max(1, before) : before + 1;
  const delayMs = delayFor(failure.cause, failures, known, policy, random);
  return {
    replicaId: record.id,
    model: record.model,
    profile: record.profile,
    nodeId: failure.nodeId,
    cause: failure.cause,
    failures,
    delayMs,
    untilWallMs: nowWallMs + delayMs,
    permanent,
    lastMessage: failure.message,
    ...(failure.logTail === undefined ? {} : { lastLogTail: failure.logTail }),
    ...(failure.exitCode === undefined ? {} : { lastExitCode: failure.exitCode }),
    ...(failure.exitSignal === undefined ? {} : { lastExitSignal: failure.exitSignal }),
    lastFailureWallMs: nowWallMs,
    generation: record.generation,
    specDigest: record.specDigest,
  };
}

function delayFor(
  cause: Verdict,
  failures: number,
  known: readonly BackoffRecord[],
  policy: ControlPolicy,
  random: () => number,
): number {
  if (cause === 'portTaken' && failures <= PORT_RETRIES) return 0;
  // The place is parked, so trying the next one at once cannot become a storm on this one.
  if (NODE_VERDICTS.has(cause) && known.filter((one) => one.permanent).length < NODE_RETRIES) return 0;
  // A permanent cause parks the place, so the next try is elsewhere; leftovers of others on a GPU are not the model's fault.
  const doublings = PERMANENT_VERDICTS.has(cause) || cause === 'gpuNotEmpty' ? 0 : countedFailures(known);
  const full = Math.min(policy.maxBackoffMs, policy.baseBackoffMs * 2 ** Math.min(doublings, 30));
  return Math.round(full * (1 - JITTER_SHARE * random()));
}

/** Failures that make a replica wait longer. */
function countedFailures(known: readonly BackoffRecord[]): number {
  let sum = 0;
  for (const record of known) {
    if (record.permanent || record.cause === 'gpuNotEmpty') continue;
    sum += record.cause === 'portTaken' ? Math.max(0, record.failures - PORT_RETRIES) : record.failures;
  }
  return sum;
}

/** The record of the failure that ended this generation, if it has failed. */
export function failureOfGeneration(
  known: readonly BackoffRecord[],
  generation: number,
): BackoffRecord | undefined {
  return known.find((record) => record.generation === generation);
}

/**
 * Time left until the replica may be tried again, for a server that has no monotonic memory of the failure. A wall clock set back
 * meanwhile must not make it wait longer than the delay ever was.
 */
export function leftAfterRestartMs(record: BackoffRecord, nowWallMs: number): number {
  return Math.min(record.delayMs, Math.max(0, record.untilWallMs - nowWallMs));
}

/** How long a replica must be healthy before its failures are forgotten. */
export function healthyResetMs(known: readonly BackoffRecord[], policy: ControlPolicy): number {
  return Math.max(policy.healthyResetMs, ...known.filter((one) => !one.permanent).map((one) => one.delayMs));
}
