/**
 * What is left of an earlier agent's engines? Decided from what was written down and what runs now; nothing is touched here.
 * A process is ours only if pid, start time and boot agree with the record and it carries our marker.
 */
import { readMarker, shardMark } from './marker.js';
import type { ProcessFacts, ProcessTable } from './process-table.js';
import type { StoredEnd, StoredShard } from './state-file.js';
import type { ProcessIdentity } from './supervisor.js';

export interface AdoptionPlan {
  readonly adopt: readonly { readonly stored: StoredShard; readonly identity: ProcessIdentity }[];
  /** Gone while nobody watched, or ended before. */
  readonly ended: readonly Ended[];
  /** Marked processes nobody has a use for: to be stopped before anything new starts. */
  readonly orphans: readonly Orphan[];
}

export interface Ended {
  readonly stored: StoredShard;
  readonly end: StoredEnd;
  /** It ended by itself while nobody watched: its output may tell why. */
  readonly unseen: boolean;
}

export interface Orphan {
  readonly mark: string;
  readonly leader: ProcessIdentity;
  readonly pids: readonly number[];
}

interface Marked {
  readonly facts: ProcessFacts;
  readonly mark: string;
}

/** `rebuild` = the record was lost: what carries a whole marker is taken over instead of being stopped. */
export function planAdoption(
  agent: string,
  shards: readonly StoredShard[],
  processes: ProcessTable,
  rebuild: boolean,
): AdoptionPlan {
  const marked = findMarked(agent, processes);
  const bootId = processes.bootId();
  const adopt: { stored: StoredShard; identity: ProcessIdentity }[] = [];
  const ended: Ended[] = [];
  for (const stored of shards) {
    if (stored.end !== undefined) {
      ended.push({ stored, end: stored.end, unseen: false });
      continue;
    }
    const leader = findLeader(stored, marked, bootId);
    if (leader !== undefined) adopt.push({ stored, identity: identityOf(leader, bootId) });
    else ended.push(gone(stored, bootId, processes.canIdentify));
  }
  const taken = new Set(adopt.map(({ stored }) => shardMark(stored.spec)));
  if (rebuild) {
    for (const found of rebuilt(agent, marked, processes, bootId)) {
      adopt.push(found);
      taken.add(shardMark(found.stored.spec));
    }
  }
  return { adopt, ended, orphans: orphansOf(marked, taken, bootId) };
}

function findMarked(agent: string, processes: ProcessTable): Marked[] {
  return processes
    .list()
    .filter((facts) => !facts.zombie && facts.pid !== process.pid)
    .flatMap((facts) => {
      const marker = readMarker(agent, processes.environment(facts.pid));
      return marker === undefined ? [] : [{ facts, mark: marker.mark }];
    });
}

/** The leader of a stored start; one that was being started when the agent died is known by its marker alone. */
function findLeader(
  stored: StoredShard,
  marked: readonly Marked[],
  bootId: string | undefined,
): ProcessFacts | undefined {
  const own = marked.filter(({ mark }) => mark === shardMark(stored.spec)).map(({ facts }) => facts);
  const { process } = stored;
  if (process === undefined) return own.find((facts) => facts.pid === facts.groupId);
  if (process.bootId !== bootId) return undefined;
  return own.find((facts) => facts.pid === process.pid && facts.startTicks === process.startTicks);
}

function gone(stored: StoredShard, bootId: string | undefined, canIdentify: boolean): Ended {
  const ended = (message: string, unseen = false): Ended => ({
    stored,
    end: { verdict: 'unknown', message },
    unseen,
  });
  if (!canIdentify) return ended('this system cannot tell whether the engine of an earlier agent still runs');
  if (stored.process === undefined) return ended('the agent ended before the engine was started');
  if (stored.process.bootId !== bootId) return ended('the machine was restarted');
  return ended('the engine ended while no agent was there to see how', true);
}

function* rebuilt(
  agent: string,
  marked: readonly Marked[],
  processes: ProcessTable,
  bootId: string | undefined,
): Generator<{ stored: StoredShard; identity: ProcessIdentity }> {
  for (const { facts } of marked) {
    if (facts.pid !== facts.groupId) continue;
    const spec = readMarker(agent, processes.environment(facts.pid))?.spec;
    if (spec === undefined) continue;
    const identity = identityOf(facts, bootId);
    // Nobody knows whether it was Ready: it has to prove it again.
    yield { stored: { spec, process: identity, ready: false }, identity };
  }
}

function orphansOf(
  marked: readonly Marked[],
  taken: ReadonlySet<string>,
  bootId: string | undefined,
): Orphan[] {
  const untaken = marked.filter(({ mark }) => !taken.has(mark));
  return [...new Set(untaken.map(({ mark }) => mark))].flatMap((mark) => {
    const all = untaken.filter((entry) => entry.mark === mark).map(({ facts }) => facts);
    const leader = all.find((facts) => facts.pid === facts.groupId) ?? all[0];
    if (leader === undefined) return [];
    return [{ mark, leader: identityOf(leader, bootId), pids: all.map(({ pid }) => pid) }];
  });
}

function identityOf(facts: ProcessFacts, bootId: string | undefined): ProcessIdentity {
  return {
    pid: facts.pid,
    startTicks: facts.startTicks,
    ...(bootId === undefined ? {} : { bootId }),
  };
}
