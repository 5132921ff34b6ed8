/** Figures and the table they are printed in. */

export interface Line {
  readonly what: string;
  readonly measured: string;
  readonly bar: string;
  readonly met: boolean;
}

export function quantile(values: readonly number[], share: number): number {
  const sorted = [...values].toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
}

export const median = (values: readonly number[]): number => quantile(values, 0.5);

export function table(lines: readonly Line[]): string {
  const rows = [
    ['', 'measured', 'bar', ''],
    ['---', '---', '---', '---'],
    ...lines.map(({ what, measured, bar, met }) => [what, measured, bar, met ? 'met' : 'NOT MET']),
  ];
  return rows.map((row) => `| ${row.join(' | ')} |`).join('\n');
}
