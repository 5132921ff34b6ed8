/** Puts the full picture of the node together, within what one message may hold. */
import type { NodeReport } from '../agent-protocol/messages.js';
import type { ShardReport } from '../domain/cluster.js';
import type { Clock } from '../shared/clock.js';
import type { EngineCatalog } from './engines/catalog.js';
import type { GpuMonitor } from './gpu/monitor.js';
import { LOG_TAIL_MAX_BYTES, type AgentTimings } from './limits.js';
import { tailBytes } from './log-text.js';
import { listeningPorts, readSlowFacts, type SlowFacts } from './node-facts.js';
import type { AgentConfig } from '../config/agent-config.js';
import type { ShardSet } from './shard-set.js';

export interface ReportBuilderDeps {
  readonly config: Pick<AgentConfig, 'modelRoots' | 'stateDir'>;
  readonly clock: Clock;
  readonly shards: ShardSet;
  readonly gpus: GpuMonitor;
  readonly engines: EngineCatalog;
  readonly timings: Pick<AgentTimings, 'nodeFactsIntervalMs'>;
}

/** Half of a message may be log tails; the rest is room for everything else. */
const TAILS_SHARE = 0.5;

export class ReportBuilder {
  private readonly startedMs: number;
  private slow: { readonly facts: SlowFacts; readonly readMs: number } | undefined;

  constructor(private readonly deps: ReportBuilderDeps) {
    this.startedMs = deps.clock.monotonicMs();
  }

  /** `withTails` false leaves all logs out: for a server that refused a message of the usual size. */
  build(sequence: number, maxMessageBytes: number, withTails: boolean): NodeReport {
    const { shards, gpus, engines, clock } = this.deps;
    const picture = gpus.picture();
    const ours = shards.ports();
    const slow = this.slowFacts();
    return {
      sequence,
      complete: picture !== undefined,
      gpus: picture?.gpus ?? [],
      shards: boundTails(shards.reports(), withTails ? maxMessageBytes * TAILS_SHARE : 0),
      engines: engines.offers(),
      portsTaken: listeningPorts().filter((port) => !ours.has(port)),
      weightsPresent: slow.weightsPresent,
      conditions: [...shards.conditions(), ...gpus.conditions(), ...slow.conditions],
      uptimeMs: Math.round(clock.monotonicMs() - this.startedMs),
    };
  }

  private slowFacts(): SlowFacts {
    const nowMs = this.deps.clock.monotonicMs();
    if (this.slow === undefined || nowMs - this.slow.readMs >= this.deps.timings.nodeFactsIntervalMs)
      this.slow = { facts: readSlowFacts(this.deps.config), readMs: nowMs };
    return this.slow.facts;
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
