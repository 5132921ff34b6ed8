import type { Hello } from '../agent-protocol/messages.js';

/** What is known of an agent that holds, or wants to hold, a node id. */
export interface Claim {
  readonly hello: Pick<Hello, 'instanceId' | 'machineId' | 'bootId' | 'hostname'>;
  /** Host its stream comes from. */
  readonly peerHost: string;
}

/** Why a claim replaces the present holder, or that it does not. */
export type ClaimVerdict = 'sameAgent' | 'sameMachine' | 'otherMachine' | 'superseded';

/**
 * Whether an agent may take a node id over from the one whose stream is still open. An agent that dials again and one
 * that was restarted may: the old stream is only not yet known to be dead. Another machine may not: a cloned disk
 * carries the same node id and even the same machine id, and two of them replacing each other would look like one node
 * whose engines come and go. `superseded` lists instances that lost the id to a later one: they never come back as a
 * restart, so two agents on one machine cannot alternate either.
 */
export function judgeClaim(holder: Claim, claim: Claim, superseded: ReadonlySet<string>): ClaimVerdict {
  if (holder.hello.instanceId === claim.hello.instanceId) return 'sameAgent';
  if (superseded.has(claim.hello.instanceId)) return 'superseded';
  return isSameMachine(holder, claim) ? 'sameMachine' : 'otherMachine';
}

function isSameMachine(holder: Claim, claim: Claim): boolean {
  const [a, b] = [holder.hello, claim.hello];
  const sameHost = holder.peerHost === claim.peerHost;
  if (a.machineId === undefined && b.machineId === undefined) return sameHost && a.hostname === b.hostname;
  if (a.machineId !== b.machineId) return false;
  // The boot id is made anew by every kernel: with it equal, even a changed address is the same machine.
  return sameHost || (a.bootId !== undefined && a.bootId === b.bootId);
}
