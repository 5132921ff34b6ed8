/** Puts the full picture of the node together, within what one message may hold. */
import type { NodeReport } from '../agent-protocol/messages.js';
import type { NodeCondition, ShardReport } from '../domain/cluster.js';
import type { Clock } from '../shared/clock.js';
import type { EngineCatalog } from './engines/catalog.js';
import type { GpuMonitor } from './gpu/monitor.js';
import { LOG_TAIL_MAX_BYTES, type AgentTimings } from './limits.js';
import { tailBytes } from './log-text.js';
import { NO_SLOW_FACTS, readSlowFacts, type SlowFacts } from './node-facts.js';
import { listeningPorts } from './ports-in-use.js';
import type { AgentConfig } from '../config/agent-config.js';
import type { ShardSet } from './shard-set.js';

export interface ReportBuilderDeps {
  readonly config: Pick<AgentConfig, 'modelRoots' | 'stateDir'>;
  readonly clock: Clock;
  readonly shards: ShardSet;
  readonly gpus: GpuMonitor;
  readonly engines: EngineCatalog;
  readonly timings: Pick<AgentTimings, 'nodeFactsIntervalMs'>;
  /** The first slow facts are there: reports are whole from now on. */
  readonly changed: () => void;
  readonly moreConditions: () => readonly NodeCondition[];
}

/** Half of a message may be log tails; the rest is room for everything else. */
const TAILS_SHARE = 0.5;

export class ReportBuilder {
  private readonly startedMs: number;
  private slow: SlowFacts | undefined;
  private slowReadMs = Number.NEGATIVE_INFINITY;
  private reading: Promise<void> | undefined;

  constructor(private readonly deps: ReportBuilderDeps) {
    this.startedMs = deps.clock.monotonicMs();
  }

  /** `withTails` false leaves all logs out: for a server that refused a message of the usual size. */
  build(sequence: number, maxMessageBytes: number, withTails: boolean): NodeReport {
    const { shards, gpus, clock } = this.deps;
    const picture = gpus.picture();
    const ours = shards.ports();
    void this.refresh();
    const slow = this.slow ?? NO_SLOW_FACTS;
    return {
      sequence,
      complete: picture !== undefined && this.slow !== undefined,
      gpus: picture?.gpus ?? [],
      shards: boundTails(shards.reports(), withTails ? maxMessageBytes * TAILS_SHARE : 0),
      engines: slow.engines,
      portsTaken: listeningPorts().filter((port) => !ours.has(port)),
      weightsPresent: slow.weightsPresent,
      conditions: [
        ...shards.conditions(),
        ...gpus.conditions(),
        ...slow.conditions,
        ...this.deps.moreConditions(),
      ],
      uptimeMs: Math.round(clock.monotonicMs() - this.startedMs),
    };
  }

  /** Reads what changes slowly once more, when it is time; a report never waits for it. */
  refresh(): Promise<void> {
    const { clock, timings } = this.deps;
    if (clock.monotonicMs() - this.slowReadMs < timings.nodeFactsIntervalMs) return Promise.resolve();
    this.reading ??= this.read().finally(() => (this.reading = undefined));
    return this.reading;
  }

  private async read(): Promise<void> {
    const first = this.slow === undefined;
    this.slow = await readSlowFacts(this.deps.config, this.deps.engines);
    this.slowReadMs = this.deps.clock.monotonicMs();
    if (first) this.deps.changed();
  }
}

/** Shares the room for tails among those that have one; the end of a log says most. */
export function boundTails(reports: readonly ShardReport[], roomBytes: number): ShardReport[] {
  const wanting = reports.filter(({ logTail }) => logTail !== undefined).length;
  const each = wanting === 0 ? 0 : Math.min(LOG_TAIL_MAX_BYTES, Math.floor(roomBytes / wanting));
  return reports.map((report) => {
    if (report.logTail === undefined || Buffer.byteLength(report.logTail) <= each) return report;
    const { logTail, ...rest } = report;
    const tail = tailBytes(logTail.split('\n'), each);
    return each === 0 || tail === '' ? rest : { ...rest, logTail: tail };
  });
}
