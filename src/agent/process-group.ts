/**
 * An engine is never one process: wrappers start launchers, launchers start workers, and any of them may ignore TERM
 * or leave the group. So an engine is the group of its leader, everything that carries its marker or writes to its log,
 * and everything that was once seen to be of it.
 */
import type { Clock } from '../shared/clock.js';
import { belongsTo, ownershipOf, type EngineOwner, type EngineTraces } from './ownership.js';
import { signalProcess, type ProcessFacts, type ProcessTable } from './process-table.js';
import { pause } from './wait.js';

export interface GroupIdentity {
  /** Pid of the leader; also the group's and the session's id. */
  readonly leaderPid: number;
  readonly leaderStartTicks: number;
  readonly owner: EngineOwner;
  readonly engine: EngineTraces;
}

export interface GroupEnd {
  /** True when TERM was not enough. */
  readonly killed: boolean;
  /** Processes that even KILL did not end in time, e.g. stuck in a driver call. */
  readonly survivors: readonly number[];
}

export interface GroupDeps {
  readonly processes: ProcessTable;
  readonly clock: Clock;
  readonly pollMs: number;
  readonly killSettleMs: number;
}

export class ProcessGroup {
  /** The last scan's members: cheap to look at again, so that waiting does not read all of /proc each time. */
  private known: readonly ProcessFacts[] = [];

  constructor(
    readonly identity: GroupIdentity,
    private readonly deps: GroupDeps,
  ) {}

  /** True while the leader itself lives. */
  leaderAlive(): boolean {
    const facts = this.deps.processes.read(this.identity.leaderPid);
    return facts !== undefined && !facts.zombie && facts.startTicks === this.identity.leaderStartTicks;
  }

  /** Pids of all live members; those that only wait to be reaped hold nothing and do not count. */
  members(): readonly number[] {
    this.known = this.deps.processes.canIdentify ? this.scan() : this.guess();
    return this.known.map((facts) => facts.pid);
  }

  /** Processor time of all live members, clock ticks; undefined where it cannot be read. */
  cpuTicks(): number | undefined {
    if (!this.deps.processes.canIdentify) return undefined;
    this.members();
    return this.known.reduce((sum, facts) => sum + facts.cpuTicks, 0);
  }

  /** TERM, grace, KILL, until the group is really empty. The grace is asked for anew each time: it may be cut short. */
  async end(graceMs: () => number): Promise<GroupEnd> {
    this.signalAll('SIGTERM');
    // A stopped process takes TERM only after it goes on.
    this.signalAll('SIGCONT');
    if (await this.emptyWithin(graceMs)) return { killed: false, survivors: [] };
    this.signalAll('SIGKILL');
    if (await this.emptyWithin(() => this.deps.killSettleMs, 'SIGKILL'))
      return { killed: true, survivors: [] };
    return { killed: true, survivors: this.members() };
  }

  /** KILL to all, at once and without waiting. */
  kill(): void {
    this.signalAll('SIGKILL');
  }

  private async emptyWithin(limitMs: () => number, again?: NodeJS.Signals): Promise<boolean> {
    const { clock, pollMs } = this.deps;
    const beganMs = clock.monotonicMs();
    for (;;) {
      if (!this.known.some((facts) => this.stillThere(facts))) {
        // Somebody may have forked between the scan and the signal.
        if (this.members().length === 0) return true;
        if (again !== undefined) this.signalKnown(again);
      }
      const leftMs = beganMs + limitMs() - clock.monotonicMs();
      if (leftMs <= 0) return false;
      await pause(clock, Math.min(pollMs, leftMs));
    }
  }

  private stillThere(before: ProcessFacts): boolean {
    const facts = this.deps.processes.read(before.pid);
    return facts !== undefined && !facts.zombie && isSame(before, facts);
  }

  private signalAll(signal: NodeJS.Signals): void {
    this.members();
    this.signalKnown(signal);
  }

  /** Signals each member by its own pid: the group's id alone could by now be a stranger's. */
  private signalKnown(signal: NodeJS.Signals): void {
    if (!this.deps.processes.canIdentify) {
      if (this.known.length > 0) signalProcess(-this.identity.leaderPid, signal);
      return;
    }
    for (const facts of this.known) if (this.stillThere(facts)) signalProcess(facts.pid, signal);
  }

  private scan(): ProcessFacts[] {
    const { leaderPid, leaderStartTicks, owner, engine } = this.identity;
    const { processes } = this.deps;
    const all = processes.list();
    const leader = all.find((facts) => facts.pid === leaderPid);
    // While the leader's entry exists, even as a zombie, its group id cannot belong to anybody else.
    const groupIsOurs = leader?.startTicks === leaderStartTicks;
    return all.filter((facts) => {
      if (facts.zombie) return false;
      if (facts.groupId === leaderPid && groupIsOurs) return true;
      if (this.known.some((before) => isSame(before, facts))) return true;
      return belongsTo(ownershipOf(owner, processes, facts.pid), engine);
    });
  }

  private guess(): ProcessFacts[] {
    const { leaderPid, leaderStartTicks } = this.identity;
    if (!signalProcess(-leaderPid, 0)) return [];
    return [
      {
        pid: leaderPid,
        parentPid: 0,
        groupId: leaderPid,
        sessionId: leaderPid,
        zombie: false,
        startTicks: leaderStartTicks,
        cpuTicks: 0,
      },
    ];
  }
}

/** A pid is used again; a pid with its start time is not. */
function isSame(one: ProcessFacts, other: ProcessFacts): boolean {
  return one.pid === other.pid && one.startTicks === other.startTicks;
}
