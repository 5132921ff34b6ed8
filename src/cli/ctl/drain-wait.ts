/** Following a drain to its end: what it waits for, and with which exit code it ends. */
import type { ListView } from '../../admin-api/views/answers.js';
import type { NodeDetailView } from '../../admin-api/views/nodes.js';
import type { EventView } from '../../admin-api/views/status.js';
import type { Clock } from '../../shared/clock.js';
import { EXIT, OperatorError } from '../../shared/errors.js';
import { QuietExit } from '../failure.js';
import { drainWaits } from '../render/drain.js';
import { count, span } from '../render/values.js';
import type { AdminClient } from './admin-client.js';
import { segment } from './ctl-base.js';
import { Patience } from './patience.js';

const LOOK_EVERY_MS = 1_000;
/** Passes are no further apart than this. */
const NEXT_PASS_MS = 5_000;
/** After its deadline a drain that was allowed to force has only stops left: longer than any of them takes. */
const AFTER_DEADLINE_MS = 120_000;
/** Events of bounds that were hit. */
const FORCED = ['StreamGraceOver', 'DrainDeadline'] as const;

export class DrainWait {
  readonly #told = new Map<string, string>();
  readonly #seen = new Set<string>();
  readonly #startedMs: number;
  #pastDeadlineMs: number | undefined;
  #live = false;

  constructor(
    private readonly client: AdminClient,
    private readonly clock: Clock,
    private readonly id: string,
    private readonly sequence: number,
  ) {
    this.#startedMs = clock.monotonicMs();
  }

  /** Returns when the node is empty; throws what its end means otherwise. */
  async run(): Promise<void> {
    const interrupted = () => {
      this.#say(`the drain goes on; \`llmgw ctl uncordon ${this.id}\` cancels it`);
      process.exit(EXIT.interrupted);
    };
    const patience = new Patience(this.clock, (line) => this.#say(line));
    process.once('SIGINT', interrupted);
    try {
      for (;;) {
        if ((await patience.ask(() => this.#look())) === true) return;
        await new Promise<void>((resolve) => this.clock.setTimer(LOOK_EVERY_MS, resolve));
      }
    } finally {
      process.off('SIGINT', interrupted);
    }
  }

  /** True when the node is empty; throws what another end means. */
  async #look(): Promise<boolean> {
    const { id } = this;
    const { scheduling } = await this.client.get<NodeDetailView>(`nodes/${segment(id)}`);
    if (scheduling.target !== 'drained' || scheduling.sequence !== this.sequence) {
      throw new OperatorError('conflict', `the drain of ${id} was replaced: it is now ${scheduling.target}`);
    }
    this.#tell(scheduling);
    if (scheduling.state === 'drained') {
      await this.#end(scheduling);
      return true;
    }
    if (scheduling.leftMs !== 0) return false;
    const nowMs = this.clock.monotonicMs();
    this.#pastDeadlineMs ??= nowMs;
    // The pass that acts on the deadline may be still to come.
    if (nowMs - this.#pastDeadlineMs < NEXT_PASS_MS) return false;
    const ending = scheduling.waitingFor.every(({ reason }) => ENDING.has(reason.code));
    if (ending && nowMs - this.#pastDeadlineMs < AFTER_DEADLINE_MS) return false;
    this.#say(`the deadline of the drain of ${id} is over and it has not ended`);
    throw new QuietExit(EXIT.timedOut);
  }

  async #end({ stateReason, since }: NodeDetailView['scheduling']): Promise<void> {
    const { id } = this;
    if (stateReason !== undefined) {
      this.#say(`${id}: ${stateReason}`);
      throw new QuietExit(EXIT.failed);
    }
    const forced = await this.#forced(since);
    const took = span(this.clock.monotonicMs() - this.#startedMs);
    if (forced.length === 0) return this.#say(`${id}: drained, waited ${took}`);
    for (const { subject, reason } of forced) this.#say(`${subject.id}: ${reason.message}`);
    this.#say(`${id}: drained by force, waited ${took}: ${count(forced.length, 'bound')} hit`);
    throw new QuietExit(EXIT.timedOut);
  }

  /** Bounds that replicas of this drain ran into. */
  async #forced(since: string | undefined): Promise<readonly EventView[]> {
    const lists = await Promise.all(
      FORCED.map((type) => this.client.get<ListView<EventView>>('events', { type, kind: 'replica' })),
    );
    const fromMs = since === undefined ? 0 : Date.parse(since);
    return lists
      .flatMap(({ items }) => items)
      .filter(({ at, subject }) => Date.parse(at) >= fromMs && this.#seen.has(subject.id));
  }

  // ---------------------------------------------------------------- what is told

  /** A terminal has one line that follows the time left; elsewhere each change is one line. */
  #tell(scheduling: NodeDetailView['scheduling']): void {
    const waits = drainWaits(scheduling);
    for (const { replicaId, what, left } of waits) {
      this.#seen.add(replicaId);
      if (this.#told.get(replicaId) === what) continue;
      this.#told.set(replicaId, what);
      this.#say(`${replicaId}: ${what}${left === undefined ? '' : ` (${left})`}`);
    }
    for (const replicaId of this.#told.keys()) {
      if (waits.some((wait) => wait.replicaId === replicaId)) continue;
      this.#told.delete(replicaId);
      this.#say(`${replicaId}: gone from ${this.id}`);
    }
    this.#showLive(scheduling);
  }

  #showLive(scheduling: NodeDetailView['scheduling']): void {
    const { leftMs, waitingFor } = scheduling;
    if (process.stderr.isTTY !== true || waitingFor.length === 0) return;
    const [first] = drainWaits(scheduling);
    const bound = first?.left === undefined ? '' : `, ${first.replicaId} ${first.left}`;
    const whole = leftMs === undefined ? '' : `, drain ${span(leftMs)}`;
    const took = span(this.clock.monotonicMs() - this.#startedMs);
    const line = `${took}: ${count(waitingFor.length, 'replica')} left${bound}${whole}`;
    process.stderr.write(`\r\u001b[K${line.slice(0, (process.stderr.columns || 80) - 1)}`);
    this.#live = true;
  }

  #say(line: string): void {
    if (this.#live) process.stderr.write('\r\u001b[K');
    this.#live = false;
    process.stderr.write(`${line}\n`);
  }
}

/** What is on its way to a stop by itself. */
const ENDING: ReadonlySet<string> = new Set(['waits_for_stop', 'drain_deadline', 'waits_for_streams']);
