/**
 * The marker every engine carries in its environment, children included. It tells a later agent whose a process is
 * and which shard it serves, even when the state file is lost; strangers have none and are never touched.
 */
import { createHash } from 'node:crypto';
import { realpathSync } from 'node:fs';
import type { ShardSpec } from './shard-spec.js';
import { parseShardSpec } from './shard-spec.js';

export const MARKER_AGENT = 'LLMGW_AGENT';
export const MARKER_SHARD = 'LLMGW_SHARD';
export const MARKER_SPEC = 'LLMGW_SHARD_SPEC';

/** Names an agent by its state directory: two agents on one machine have two, a restarted one has the same. */
export function agentMark(stateDir: string): string {
  return createHash('sha256').update(realpathSync(stateDir)).digest('hex').slice(0, 16);
}

/** `shardId@generation`: one start of one shard. */
export function shardMark(spec: Pick<ShardSpec, 'shardId' | 'generation'>): string {
  return `${spec.shardId}@${spec.generation}`;
}

export function markerVariables(agent: string, spec: ShardSpec): Record<string, string> {
  return { [MARKER_AGENT]: agent, [MARKER_SHARD]: shardMark(spec), [MARKER_SPEC]: JSON.stringify(spec) };
}

/** The shard a marked process of this agent serves; undefined for anybody else's process. */
export function readMarker(
  agent: string,
  environment: ReadonlyMap<string, string> | undefined,
): { readonly mark: string; readonly spec?: ShardSpec } | undefined {
  const mark = environment?.get(MARKER_SHARD);
  if (mark === undefined || environment?.get(MARKER_AGENT) !== agent) return undefined;
  const spec = parseShardSpec(environment.get(MARKER_SPEC));
  return { mark, ...(spec === undefined ? {} : { spec }) };
}
