/**
 * What is left of an earlier agent's engines? Decided from what was written down and what runs now; nothing is touched here.
 * A process is ours only if pid, start time and boot agree with the record and it carries our marker or writes to our log.
 */
import {
  belongsTo,
  ownershipOf,
  tracesOf,
  type EngineOwner,
  type EngineTraces,
  type Ownership,
} from './ownership.js';
import { optional } from './optional.js';
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
  readonly engine: EngineTraces;
  readonly leader: ProcessIdentity;
  readonly pids: readonly number[];
}

interface Owned {
  readonly facts: ProcessFacts;
  readonly ownership: Ownership;
}

/** `rebuild` = the record was lost: what carries a whole marker is taken over instead of being stopped. */
export function planAdoption(
  owner: EngineOwner,
  shards: readonly StoredShard[],
  processes: ProcessTable,
  rebuild: boolean,
): AdoptionPlan {
  const owned = findOwned(owner, processes);
  const bootId = processes.bootId();
  const adopt: { stored: StoredShard; identity: ProcessIdentity }[] = [];
  const ended: Ended[] = [];
  for (const stored of shards) {
    if (stored.end !== undefined) {
      ended.push({ stored, end: stored.end, unseen: false });
      continue;
    }
    const leader = findLeader(owner, stored, owned, bootId);
    if (leader !== undefined) adopt.push({ stored, identity: identityOf(leader, bootId) });
    else ended.push(gone(stored, bootId, processes.canIdentify));
  }
  if (rebuild) adopt.push(...rebuilt(owned, bootId));
  const taken = adopt.map(({ stored }) => tracesOf(owner, stored.spec));
  const untaken = owned.filter(({ ownership }) => !taken.some((engine) => belongsTo(ownership, engine)));
  return { adopt, ended, orphans: orphansOf(untaken, bootId) };
}

function findOwned(owner: EngineOwner, processes: ProcessTable): Owned[] {
  return processes
    .list()
    .filter((facts) => !facts.zombie && facts.pid !== process.pid)
    .flatMap((facts) => {
      const ownership = ownershipOf(owner, processes, facts.pid);
      return ownership === undefined ? [] : [{ facts, ownership }];
    });
}

/** The leader of a stored start; one that was being started when the agent died is known by its marker alone. */
function findLeader(
  owner: EngineOwner,
  stored: StoredShard,
  owned: readonly Owned[],
  bootId: string | undefined,
): ProcessFacts | undefined {
  const engine = tracesOf(owner, stored.spec);
  const own = owned.filter(({ ownership }) => belongsTo(ownership, engine)).map(({ facts }) => facts);
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
  owned: readonly Owned[],
  bootId: string | undefined,
): Generator<{ stored: StoredShard; identity: ProcessIdentity }> {
  for (const { facts, ownership } of owned) {
    if (facts.pid !== facts.groupId || ownership.spec === undefined) continue;
    const { spec } = ownership;
    const identity = identityOf(facts, bootId);
    // Nobody knows whether it was Ready: it has to prove it again.
    yield { stored: { spec, process: identity, ready: false }, identity };
  }
}

function orphansOf(untaken: readonly Owned[], bootId: string | undefined): Orphan[] {
  const nameOf = ({ ownership }: Owned) => ownership.mark ?? ownership.directory;
  return [...new Set(untaken.map(nameOf))].flatMap((name) => {
    const members = untaken.filter((entry) => nameOf(entry) === name);
    const all = members.map(({ facts }) => facts);
    const leader = all.find((facts) => facts.pid === facts.groupId) ?? all[0];
    const [first] = members;
    if (leader === undefined || first === undefined) return [];
    const { mark, directory } = first.ownership;
    const engine = { ...optional('mark', mark), ...optional('directory', directory) };
    return [{ engine, leader: identityOf(leader, bootId), pids: all.map(({ pid }) => pid) }];
  });
}

function identityOf(facts: ProcessFacts, bootId: string | undefined): ProcessIdentity {
  return {
    pid: facts.pid,
    startTicks: facts.startTicks,
    ...(bootId === undefined ? {} : { bootId }),
  };
}
