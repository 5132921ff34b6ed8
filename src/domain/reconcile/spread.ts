/**
 * Whether copies that were to be kept apart are. Placement spreads what it places, but nothing that serves is moved only to spread
 * it again: after the loss of a node its copies stand together, and when the node is back they stay. That is said, with what would
 * undo it, for as long as it holds.
 */
import type { NodeView, ReplicaRecord } from '../cluster.js';
import type { ModelSpec } from '../model-spec.js';
import { place } from '../placement/place.js';
import { counted } from '../placement/reasons.js';
import { domainOf } from '../placement/scores.js';
import { labelOf } from '../placement/world.js';
import type { Pass } from './pass.js';
import { because } from './reasons.js';

/** Models per pass for which a better place is looked for; the others are told without one. Each look costs as much as a placement. */
const REMEDIES_PER_PASS = 8;

/** Notes every model whose copies stand closer together than they need to. */
export function noteSpread(pass: Pass): void {
  let left = REMEDIES_PER_PASS;
  for (const model of pass.snapshot.models) {
    const crowd = crowdOf(pass, model);
    if (crowd === undefined) continue;
    const remedy = left > 0 ? remedyFor(pass, model, crowd) : '';
    left -= 1;
    const { most, copies, where, best } = crowd;
    const message = `spread not met: ${most} of ${counted(copies, 'replica')} on ${where}${remedy}`;
    pass.note(`model/${model.name}`, because('spread_not_met', message, { most, replicas: copies, best }));
  }
}

interface Crowd {
  /** Copies in the fullest domain, and what it would be at best. */
  readonly most: number;
  readonly best: number;
  readonly copies: number;
  /** The fullest domain, in words. */
  readonly where: string;
  readonly domain: string;
  readonly members: readonly ReplicaRecord[];
}

function crowdOf(pass: Pass, model: ModelSpec): Crowd | undefined {
  const { strategy, spreadBy } = model.placement;
  if (strategy !== 'spread' && spreadBy === undefined) return undefined;
  const copies = pass
    .recordsOf(model.name)
    .filter((record) => record.intent === 'run' && record.shards.length > 0 && !pass.isMove(record));
  if (copies.length < 2) return undefined;
  const groups = new Map<string, ReplicaRecord[]>();
  for (const record of copies) {
    const domain = domainOfRecord(pass, record, spreadBy);
    groups.set(domain, [...(groups.get(domain) ?? []), record]);
  }
  const [fullest] = [...groups].toSorted(([a, one], [b, two]) => two.length - one.length || (a < b ? -1 : 1));
  if (fullest === undefined) return undefined;
  const [domain, members] = fullest;
  const best = Math.ceil(copies.length / domainCount(pass, model));
  if (members.length <= best) return undefined;
  const where = domain.startsWith('node/')
    ? `node ${domain.slice('node/'.length)}`
    : `${spreadBy ?? 'domain'} ${domain}`;
  return { most: members.length, best, copies: copies.length, where, domain, members };
}

/** A gang is where its head is. */
export function domainOfRecord(pass: Pass, record: ReplicaRecord, spreadBy: string | undefined): string {
  const nodeId = record.shards[0]?.nodeId ?? '';
  const node = pass.nodes.get(nodeId);
  return node === undefined ? `node/${nodeId}` : domainOf(node, spreadBy);
}

/** Domains the model may use, silent and full ones counted: a node that is gone for now is why the copies stand together. */
function domainCount(pass: Pass, model: ModelSpec): number {
  const { nodeSelector, spreadBy } = model.placement;
  const allowed = [...pass.nodes.values()].filter((node) => mayUse(node, nodeSelector));
  return Math.max(1, new Set(allowed.map((node) => domainOf(node, spreadBy))).size);
}

function mayUse(node: NodeView, nodeSelector: ModelSpec['placement']['nodeSelector']): boolean {
  return Object.entries(nodeSelector).every(([key, wanted]) => labelOf(node, key) === wanted);
}

/** Where the youngest of the crowd would go if the model were restarted now. */
function remedyFor(pass: Pass, model: ModelSpec, crowd: Crowd): string {
  const youngest = crowd.members.at(-1);
  if (youngest === undefined) return '';
  const leaving = youngest.shards.map(({ nodeId }) => nodeId);
  const query = { model, replicaId: `${model.name} (spread)`, generation: 1, leaving };
  const nodeId = place(pass.world(), query)?.shards[0]?.nodeId;
  const node = nodeId === undefined ? undefined : pass.nodes.get(nodeId);
  if (node === undefined || domainOf(node, model.placement.spreadBy) === crowd.domain)
    return noPlaceBecause(pass, model, crowd);
  return `; a copy would fit on ${node.id}: llmgw ctl restart ${model.name} spreads them again`;
}

/** Only what placement looked at is said: room that is taken by what is on its way out is room in a moment. */
function noPlaceBecause(pass: Pass, { placement }: ModelSpec, { domain }: Crowd): string {
  const elsewhere = (nodeId: string): boolean => {
    const node = pass.nodes.get(nodeId);
    return (
      node !== undefined &&
      mayUse(node, placement.nodeSelector) &&
      domainOf(node, placement.spreadBy) !== domain
    );
  };
  for (const { id, intent, shards } of pass.records()) {
    const nodeId = intent === 'run' ? undefined : shards.find((shard) => elsewhere(shard.nodeId))?.nodeId;
    if (nodeId !== undefined) return `; ${id} is on its way out on ${nodeId}, its room may be enough`;
  }
  return '; no other place takes a copy now';
}
