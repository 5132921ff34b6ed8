/**
 * What engines were given and nobody may read in their output. A later agent, which has only the process, knows it by
 * name; output of a run that is over is asked for when its engine is long gone, so values are kept a while.
 */
import { SHARD_DIRECTORIES_MAX } from './limits.js';
import { redactor, SECRET_NAME, type Redact } from './redact.js';

/** Names the variables of an engine's environment that hold secrets without being named like one. */
export const SECRET_VARIABLES = 'LLMGW_SECRET_VARIABLES';

/** The variable that tells a later agent which others hold these secrets. */
export function secretVariables(
  env: Readonly<Record<string, string>>,
  secrets: readonly string[],
): Record<string, string> {
  const names = Object.keys(env).filter((name) => secrets.includes(env[name] ?? ''));
  return names.length === 0 ? {} : { [SECRET_VARIABLES]: names.join(' ') };
}

/** The secrets in the environment of a running engine. */
export function secretsOf(environment: ReadonlyMap<string, string> | undefined): string[] {
  const named = new Set(environment?.get(SECRET_VARIABLES)?.split(' '));
  return [...(environment ?? [])]
    .filter(([name]) => SECRET_NAME.test(name) || named.has(name))
    .map(([, value]) => value);
}

/** Runs of a shard whose output is kept: the present and the previous one. */
const RUNS_KEPT = 2;

export class SecretMemory {
  private readonly runs = new Map<string, readonly (readonly string[])[]>();

  /** A redactor for a run that begins, or is taken over, with these. */
  redactorFor(shardId: string, secrets: readonly string[]): Redact {
    const runs = [secrets, ...(this.runs.get(shardId) ?? [])].slice(0, RUNS_KEPT);
    this.runs.delete(shardId);
    this.runs.set(shardId, runs);
    for (const [oldest] of this.runs) {
      if (this.runs.size <= SHARD_DIRECTORIES_MAX) break;
      this.runs.delete(oldest);
    }
    return redactor(secrets);
  }

  /** A redactor for whatever is kept of the shard. Of runs before this agent only the shapes of secrets are known. */
  redactorOfKept(shardId: string): Redact {
    return redactor((this.runs.get(shardId) ?? []).flat());
  }
}
