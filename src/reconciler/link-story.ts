/** The timeline's entries for agents that come and go: what happened, why, and what they brought with them. */
import type { EventInput } from '../events/event-log.js';
import type { LinkChange } from './ports.js';
import { leftOut, ToldBound } from './told-bound.js';

/** Words link changes, and leaves out what would only repeat itself. */
export class LinkStory {
  private readonly told = new ToldBound();

  /** The entry for a change; undefined when enough was told of this node lately. The next entry says how many were left out. */
  tell(nodeId: string, change: LinkChange, nowMs: number): EventInput | undefined {
    const untold = this.told.next(nodeId, nowMs);
    return untold === undefined ? undefined : linkEvent(nodeId, change, untold);
  }
}

function linkEvent(nodeId: string, change: LinkChange, untold: number): EventInput {
  const { type, severity, code, message } = wording(change);
  return {
    type,
    severity,
    subject: { kind: 'node', id: nodeId },
    reason: {
      code,
      message: `${message}${leftOut(untold)}`,
      ...(untold === 0 ? {} : { numbers: { untold } }),
    },
    actor: 'agent',
  };
}

interface Wording {
  readonly type: string;
  readonly severity: NonNullable<EventInput['severity']>;
  readonly code: string;
  readonly message: string;
}

function wording(change: LinkChange): Wording {
  switch (change.kind) {
    case 'closed':
      return {
        type: 'AgentDisconnected',
        severity: 'warning',
        code: 'stream_closed',
        message: `the stream from ${change.from} ended: ${change.reason}; its engines go on`,
      };
    case 'reconnected':
      return {
        type: 'AgentReconnected',
        severity: 'info',
        code: 'stream_opened',
        message: `from ${change.from}${away(change.awayMs)}: ${whoIsBack(change)}; ${engines(change.engines)}`,
      };
    case 'refused':
      return {
        type: 'AgentRefused',
        severity: 'warning',
        code: change.code,
        message: `an agent at ${change.from} was not taken: ${change.message}`,
      };
    case 'staleTerm':
      return {
        type: 'TermRefused',
        severity: 'error',
        code: 'stale_term',
        message: `the agent obeys another server: ${change.message}; nothing was started or counted as failed`,
      };
  }
}

function away(awayMs: number | undefined): string {
  return awayMs === undefined ? ', before the old stream ended' : ` after ${Math.round(awayMs / 1_000)} s`;
}

function whoIsBack({ sameProcess, sameBoot }: Extract<LinkChange, { kind: 'reconnected' }>): string {
  if (sameProcess) return 'the same agent';
  return sameBoot ? 'a new agent process' : 'the machine was restarted';
}

function engines(ids: readonly string[]): string {
  if (ids.length === 0) return 'no engine of ours runs there';
  const shown = ids.slice(0, ENGINES_NAMED).join(', ');
  const more = ids.length > ENGINES_NAMED ? ` and ${ids.length - ENGINES_NAMED} more` : '';
  return `taken as they run: ${shown}${more}`;
}

/** Engines named in one entry. */
const ENGINES_NAMED = 4;
