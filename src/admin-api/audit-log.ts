import { Inject, Injectable } from '@nestjs/common';
import { EVENT_LOG, type EventInput, type EventLog } from '../events/event-log.js';
import { CLOCK, type Clock } from '../shared/clock.js';
import { OperatorError } from '../shared/errors.js';
import { LOGGER, type Logger } from '../shared/logger.js';
import { STATE_STORE, type StateStore, type StoreOp } from '../store/ports.js';
import type { Caller } from './roles.js';
import type { AuditView } from './views/status.js';

/** Records kept; older ones go. */
const AUDIT_MAX = 10_000;

/** Said of what was understood and not done. What makes no sense was no change, and what nobody may is the door's. */
const REFUSALS: ReadonlySet<string> = new Set(['conflict', 'refused']);

/** A change as it is written down. */
export interface AuditEntry {
  readonly caller: Caller;
  /** What was asked, e.g. `drain`. */
  readonly action: string;
  readonly target: string;
  readonly detail?: string;
}

/** Who changed what, from where. Written in the same transaction as the change itself: no change without its record. */
@Injectable()
export class AuditLog {
  private sequence: number;

  constructor(
    @Inject(STATE_STORE) private readonly store: StateStore,
    @Inject(EVENT_LOG) private readonly events: EventLog,
    @Inject(CLOCK) private readonly clock: Clock,
    @Inject(LOGGER) private readonly logger: Logger,
  ) {
    this.sequence = Number(store.list('audit').at(-1)?.key ?? 0);
  }

  /** Stores a change with its record and its events. Throws StoreError; then none of them is there. */
  commit(entry: AuditEntry, ops: readonly StoreOp[], ...events: readonly EventInput[]): void {
    const record = this.record(entry, 'ok');
    this.events.commit([...ops, ...this.ops(record)], events);
    this.tell(record);
  }

  /** Carries out what a caller asked for; what is refused because of the present state, or to keep a promise, is recorded as that. */
  attempt<T>(entry: AuditEntry, change: () => T): T {
    try {
      return change();
    } catch (error) {
      if (error instanceof OperatorError && REFUSALS.has(error.code)) this.refused(entry);
      throw error;
    }
  }

  /** A change that was refused. */
  refused(entry: AuditEntry, ...events: readonly EventInput[]): void {
    this.note(entry, 'refused', events);
  }

  /** Something that changed nothing and is worth a record all the same. */
  performed(entry: AuditEntry): void {
    this.note(entry, 'ok');
  }

  /** Where nothing was changed the record is no condition: a store that takes none is no error of its own. */
  private note(entry: AuditEntry, outcome: AuditView['outcome'], events: readonly EventInput[] = []): void {
    const record = this.record(entry, outcome);
    this.tell(record);
    try {
      this.events.commit(this.ops(record), events);
    } catch (error) {
      for (const event of events) this.events.append(event);
      this.logger.warn({ err: error, component: 'audit' }, `a record could not be kept: ${entry.action}`);
    }
  }

  /** Newest first. */
  list(limit: number): readonly AuditView[] {
    return this.store
      .list<AuditView>('audit')
      .slice(-limit)
      .map((entry) => entry.value)
      .toReversed();
  }

  private record(entry: AuditEntry, outcome: AuditView['outcome']): AuditView {
    const { caller, action, target, detail } = entry;
    return {
      at: new Date(this.clock.wallMs()).toISOString(),
      actor: caller.name,
      role: caller.role,
      from: caller.from,
      action,
      target,
      outcome,
      ...(detail === undefined ? {} : { detail }),
    };
  }

  private ops(record: AuditView): readonly StoreOp[] {
    const key = String(++this.sequence).padStart(12, '0');
    const kept = this.store.list('audit');
    const surplus = Math.max(0, kept.length + 1 - AUDIT_MAX);
    return [
      { op: 'put', collection: 'audit', key, value: record },
      ...kept.slice(0, surplus).map((old): StoreOp => ({ op: 'delete', collection: 'audit', key: old.key })),
    ];
  }

  private tell(record: AuditView): void {
    this.logger.info({ component: 'audit', ...record }, `${record.actor}: ${record.action} ${record.target}`);
  }
}
