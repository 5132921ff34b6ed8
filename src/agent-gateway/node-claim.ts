import type { Hello } from '../agent-protocol/messages.js';

/** What is known of an agent that holds, or wants to hold, a node id. */
export interface Claim {
  readonly hello: Pick<Hello, 'instanceId' | 'machineId' | 'bootId' | 'hostname' | 'stateDirId'>;
  /** Host its stream comes from. */
  readonly peerHost: string;
}

/** Why a claim replaces the present holder, or that it does not. */
export type ClaimVerdict = 'sameAgent' | 'sameMachine' | 'otherMachine' | 'otherDirectory' | 'superseded';

/**
 * Whether an agent may take a node id over from the one whose stream is still open. An agent that dials again and one
 * that was restarted may: the old stream is only not yet known to be dead. Another machine may not: a cloned disk
 * carries the same node id and even the same machine id, and two of them replacing each other would look like one node
 * whose engines come and go. Neither may a second agent on the machine, with a state directory of its own: the first one
 * lives, and its engines would be lost to a stranger that does not know them. `superseded` lists instances that lost the id to a later one: they never come back as a
 * restart, so two agents on one machine cannot alternate either.
 */
export function judgeClaim(holder: Claim, claim: Claim, superseded: ReadonlySet<string>): ClaimVerdict {
  if (holder.hello.instanceId === claim.hello.instanceId) return 'sameAgent';
  if (superseded.has(claim.hello.instanceId)) return 'superseded';
  if (!isSameMachine(holder, claim)) return 'otherMachine';
  return mayLiveBeside(holder, claim) ? 'otherDirectory' : 'sameMachine';
}

/** The lock of a shared state directory, or a boot in between, proves that the holder is gone. */
function mayLiveBeside(holder: Claim, claim: Claim): boolean {
  const [a, b] = [holder.hello, claim.hello];
  if (a.bootId !== undefined && b.bootId !== undefined && a.bootId !== b.bootId) return false;
  return a.stateDirId !== undefined && b.stateDirId !== undefined && a.stateDirId !== b.stateDirId;
}

function isSameMachine(holder: Claim, claim: Claim): boolean {
  const [a, b] = [holder.hello, claim.hello];
  const sameHost = holder.peerHost === claim.peerHost;
  if (a.machineId === undefined && b.machineId === undefined) return sameHost && a.hostname === b.hostname;
  if (a.machineId !== b.machineId) return false;
  // The boot id is made anew by every kernel: with it equal, even a changed address is the same machine.
  return sameHost || (a.bootId !== undefined && a.bootId === b.bootId);
}
