/** One thing that was found when a machine was looked over. */
export interface Finding {
  /** What was looked at, e.g. `engine vllm`. */
  readonly subject: string;
  readonly level: 'ok' | 'warning' | 'problem';
  readonly message: string;
  /** How to mend it. */
  readonly mend?: string;
}

/** One line for a person: `problem  engine vllm: … → …`. */
export function findingText({ level, subject, message, mend }: Finding): string {
  const line = `${level.padEnd(7)}  ${subject}: ${message}`;
  return mend === undefined ? line : `${line}\n         → ${mend}`;
}

export const ok = (subject: string, message: string): Finding => ({ subject, level: 'ok', message });
export const warning = (subject: string, message: string, mend: string): Finding => ({
  subject,
  level: 'warning',
  message,
  mend,
});
export const problem = (subject: string, message: string, mend: string): Finding => ({
  subject,
  level: 'problem',
  message,
  mend,
});
