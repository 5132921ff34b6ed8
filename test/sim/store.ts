/** The stored state: survives the server, is guarded by the term, and can be set back to an older copy. */
import {
  type BackoffRecord,
  backoffKey,
  type LearnedFact,
  type ReplicaRecord,
  type SchedulingIntent,
} from '../../src/domain/cluster.js';
import type { Plan } from '../../src/domain/plan.js';
import type { StateLoss } from '../../src/domain/snapshot.js';
import { learnedKey } from '../../src/domain/placement/world.js';
import type { StoredNode } from '../../src/inventory/node-entry.js';

interface Contents {
  term: number;
  stateLost?: StateLoss;
  replicas: Map<string, ReplicaRecord>;
  backoffs: Map<string, BackoffRecord>;
  learned: Map<string, LearnedFact>;
  intents: Map<string, SchedulingIntent>;
  nodes: Map<string, StoredNode>;
}

export class StaleTerm extends Error {}

export class Store {
  #now: Contents = empty();
  #backup: Contents | undefined;
  /** Emptied or set back, until a server has waited for the agents. */
  isBehind = false;

  get contents(): Readonly<Contents> {
    return this.#now;
  }

  nextTerm(atLeast = 0): number {
    this.#now.term = Math.max(this.#now.term, atLeast) + 1;
    return this.#now.term;
  }

  putReplica(term: number, record: ReplicaRecord): void {
    this.#guard(term);
    this.#now.replicas.set(record.id, record);
  }

  /** All or nothing, and only for the server whose term it is. */
  persist(term: number, plan: Plan): void {
    this.#guard(term);
    for (const action of plan.actions) this.#apply(action);
    const { stateLost, firstHeardMs } = plan.memory;
    if (stateLost !== undefined) this.#now.stateLost = stateLost;
    else if (firstHeardMs !== undefined) delete this.#now.stateLost;
  }

  #apply(action: Plan['actions'][number]): void {
    const { replicas, backoffs, learned } = this.#now;
    switch (action.kind) {
      case 'createReplica':
      case 'updateReplica':
        replicas.set(action.record.id, action.record);
        break;
      case 'deleteReplica':
        replicas.delete(action.replicaId);
        break;
      case 'putBackoff':
        backoffs.set(backoffKey(action.record), action.record);
        break;
      case 'clearBackoff':
        backoffs.delete(backoffKey(action.record));
        break;
      case 'putLearned':
        learned.set(learnedKey(action.fact.model, action.fact.profile, action.fact.gpuType), action.fact);
        break;
      case 'startShard':
      case 'stopShard':
      case 'abortInflight':
      case 'setNodeLiveness':
        break;
    }
  }

  putIntent(term: number, nodeId: string, intent: SchedulingIntent): void {
    this.#guard(term);
    this.#now.intents.set(nodeId, intent);
  }

  putNode(term: number, node: StoredNode): void {
    this.#guard(term);
    this.#now.nodes.set(node.id, node);
  }

  removeNode(term: number, nodeId: string): void {
    this.#guard(term);
    this.#now.nodes.delete(nodeId);
    this.#now.intents.delete(nodeId);
  }

  #guard(term: number): void {
    if (term < this.#now.term) throw new StaleTerm(`term ${term} is over`);
  }

  backUp(): void {
    this.#backup = copy(this.#now);
  }

  /** Back to the last copy, the term included; false when there is none. */
  restore(): boolean {
    if (this.#backup === undefined) return false;
    this.#now = { ...copy(this.#backup), stateLost: 'restored' };
    this.isBehind = true;
    // Who was Ready then may be somebody else by now: a restore takes that word back, or the router would believe it.
    for (const [id, { readyWallMs: _ready, ...rest }] of this.#now.replicas) this.#now.replicas.set(id, rest);
    return true;
  }

  /** All of it is gone, and nobody says so. */
  lose(): void {
    this.#now = empty();
    this.isBehind = true;
  }
}

function empty(): Contents {
  return {
    term: 0,
    replicas: new Map(),
    backoffs: new Map(),
    learned: new Map(),
    intents: new Map(),
    nodes: new Map(),
  };
}

function copy(from: Contents): Contents {
  return {
    term: from.term,
    replicas: new Map(from.replicas),
    backoffs: new Map(from.backoffs),
    learned: new Map(from.learned),
    intents: new Map(from.intents),
    nodes: new Map(from.nodes),
  };
}
