import { readdirSync, readFileSync, realpathSync } from 'node:fs';
import { agentMark } from '../../src/agent/marker.js';

/** An engine process as the kernel knows it. */
export interface LiveEngine {
  readonly pid: number;
  /** `shardId@generation` of its marker. */
  readonly shard: string;
}

/** Leaders of the process groups that the agent with this state directory started and that live. */
export function liveEngines(agentStateDir: string): readonly LiveEngine[] {
  const mark = agentMark(realpathSync(agentStateDir));
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .flatMap((name) => {
      const shard = shardOf(name, mark);
      return shard === undefined ? [] : [{ pid: Number(name), shard }];
    });
}

/** The shard a group leader serves; undefined for every other process, and for one that is gone by now. */
function shardOf(pid: string, mark: string): string | undefined {
  try {
    const environment = readFileSync(`/proc/${pid}/environ`, 'utf8').split('\0');
    if (!environment.includes(`LLMGW_AGENT=${mark}`)) return undefined;
    const [state, , group] = readFileSync(`/proc/${pid}/stat`, 'utf8')
      .replace(/^.*\) /, '')
      .split(' ');
    if (state === 'Z' || group !== pid) return undefined;
    return environment.find((line) => line.startsWith('LLMGW_SHARD='))?.slice('LLMGW_SHARD='.length);
  } catch {
    return undefined;
  }
}
