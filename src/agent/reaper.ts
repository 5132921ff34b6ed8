/**
 * Reaps what engines leave behind where nobody else does: the agent is process 1 of a container, or process 1 is a
 * program that waits for nobody (`npm`, `sleep`). Orphans are told from Node's own children by time alone: those are
 * waited for in the turn of the event loop after their end, and whoever took one away from Node would take its exit code.
 */
import type { NodeCondition } from '../domain/cluster.js';
import type { Clock } from '../shared/clock.js';
import { errorChain } from '../shared/errors.js';
import type { Logger } from '../shared/logger.js';
import type { ChildWaits } from './child-waits.js';
import type { AgentTimings } from './limits.js';
import type { ProcessTable } from './process-table.js';
import { pause } from './wait.js';

export interface ReaperDeps {
  readonly processes: ProcessTable;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly timings: Pick<AgentTimings, 'reapIntervalMs' | 'initCheckMs'>;
  readonly pid: number;
  /** Loads the wait calls; rejects where there are none. */
  readonly waits: () => Promise<ChildWaits>;
}

/** Orphans taken note of in one look: thousands may end at once, and a report must not wait for them. */
export const ORPHANS_PER_LOOK_MAX = 1_000;

/** The whole start of a process by its pid. */
type Starts = ReadonlyMap<number, number>;

export class Reaper {
  private readonly ended = new AbortController();
  /** Present once it is ours to reap. */
  private waits: ChildWaits | undefined;
  /** Why nobody reaps. */
  private lack: string | undefined;
  /** Children seen ended by the last look. */
  private seen: Starts = new Map();

  constructor(private readonly deps: ReaperDeps) {}

  /** Returns once it is known whether this agent must reap and can. */
  async start(): Promise<void> {
    const { processes, pid } = this.deps;
    if (!processes.canIdentify) return;
    if (pid === 1) await this.takeOver('the agent is process 1');
    if (this.lack === undefined) void this.run();
  }

  close(): void {
    this.ended.abort();
  }

  conditions(): NodeCondition[] {
    return this.lack === undefined ? [] : [{ type: 'NoInit', reason: this.lack, blocksPlacement: false }];
  }

  private async takeOver(why: string): Promise<void> {
    const { logger, pid } = this.deps;
    try {
      const waits = await this.deps.waits();
      if (pid !== 1 && !waits.takeOrphans()) throw new Error('the kernel gives it no orphans');
      this.waits = waits;
      logger.debug({ reason: why }, 'the agent reaps what engines leave behind');
    } catch (error) {
      this.lack = `${why}, and what engines leave behind stays a zombie; run it under an init (tini)`;
      logger.warn({ causes: errorChain(error) }, this.lack);
    }
  }

  private async run(): Promise<void> {
    const { clock, timings } = this.deps;
    let zombies: Starts = new Map();
    while (!this.ended.signal.aborted && this.lack === undefined) {
      const waits = this.waits;
      await pause(
        clock,
        waits === undefined ? timings.initCheckMs : timings.reapIntervalMs,
        this.ended.signal,
      );
      // Timers may fire twice before Node looks at what its own children did; between two of these turns it has.
      await new Promise((resolve) => setImmediate(resolve));
      if (this.ended.signal.aborted) return;
      try {
        if (waits !== undefined) this.look(waits);
        else zombies = await this.lookAtInit(zombies);
      } catch (error) {
        this.deps.logger.debug({ causes: errorChain(error) }, 'looking for what ended failed');
      }
    }
  }

  /** Reaps the children that the last look saw ended already. */
  private look(waits: ChildWaits): void {
    const before = this.seen;
    const seen = new Map<number, number>();
    this.seen = seen;
    if (!waits.anyEnded()) return;
    let reaped = 0;
    for (const pid of this.deps.processes.childrenOf(this.deps.pid)) {
      if (!waits.hasEnded(pid)) continue;
      const startTicks = this.deps.processes.read(pid)?.startTicks;
      if (startTicks === undefined) continue;
      if (before.get(pid) === startTicks) {
        waits.reap(pid);
        reaped++;
      } else if (seen.size < ORPHANS_PER_LOOK_MAX) seen.set(pid, startTicks);
    }
    if (reaped > 0) this.deps.logger.debug({ reaped }, 'orphans reaped');
  }

  /** A zombie that process 1 has left for a whole look proves that it waits for nobody. */
  private async lookAtInit(before: Starts): Promise<Starts> {
    const { processes } = this.deps;
    const zombies = new Map<number, number>();
    for (const pid of processes.childrenOf(1)) {
      const facts = processes.read(pid);
      if (facts?.zombie === true) zombies.set(pid, facts.startTicks);
    }
    if ([...zombies].some(([pid, startTicks]) => before.get(pid) === startTicks))
      await this.takeOver(`process 1 (${processes.name(1) ?? '?'}) waits for nobody`);
    return zombies;
  }
}
