/** The result of a load test, for people and for programs. */
import type { BenchResult } from './run-bench.js';
import type { LogHistogram } from './log-histogram.js';

interface Times {
  readonly p50Ms: number;
  readonly p90Ms: number;
  readonly p99Ms: number;
  readonly maxMs: number;
  readonly count: number;
}

/** What `-o json` prints. Times are null while nothing was measured. */
export interface BenchReport {
  readonly elapsedSeconds: number;
  readonly requests: number;
  readonly failures: number;
  readonly requestsPerSecond: number;
  readonly results: Readonly<Record<string, number>>;
  /** From when the request was meant to be sent. */
  readonly firstToken: Times | null;
  /** Between events with text of one stream. */
  readonly interToken: Times | null;
  /** Whole answers only. */
  readonly total: Times | null;
  readonly completionTokensPerSecond: number;
  /** `usage`: as reported; `events`: counted, because no usage was reported. */
  readonly tokensFrom: 'usage' | 'events';
  readonly promptTokens: number;
  readonly completionTokens: number;
  /** Share of prompt tokens found in prefix caches; null when no engine says. */
  readonly cachedShare: number | null;
  readonly interrupted: boolean;
}

export function benchReport(result: BenchResult, interrupted: boolean): BenchReport {
  const seconds = Math.max(result.elapsedMs, 1) / 1_000;
  const tokensFrom = result.withUsage > 0 ? 'usage' : 'events';
  const completionTokens = tokensFrom === 'usage' ? result.completionTokens : result.events;
  return {
    elapsedSeconds: round(seconds),
    requests: result.completed,
    failures: result.failures,
    requestsPerSecond: round(result.completed / seconds),
    results: Object.fromEntries([...result.results].toSorted(([, a], [, b]) => b - a)),
    firstToken: times(result.firstToken),
    interToken: times(result.gap),
    total: times(result.total),
    completionTokensPerSecond: round(completionTokens / seconds),
    tokensFrom,
    promptTokens: result.promptTokens,
    completionTokens,
    cachedShare:
      result.withCached === 0 || result.promptTokens === 0
        ? null
        : round(result.cachedTokens / result.promptTokens),
    interrupted,
  };
}

function times(histogram: LogHistogram): Times | null {
  if (histogram.count === 0) return null;
  return {
    p50Ms: round(histogram.quantile(0.5)),
    p90Ms: round(histogram.quantile(0.9)),
    p99Ms: round(histogram.quantile(0.99)),
    maxMs: round(histogram.maxMs),
    count: histogram.count,
  };
}

const round = (value = 0): number => Number(value.toPrecision(4));

export function reportLines(report: BenchReport): string[] {
  const rows: (readonly string[])[] = [
    ['', 'p50', 'p90', 'p99', 'max', 'count'],
    timesRow('first token', report.firstToken),
    timesRow('inter-token', report.interToken),
    timesRow('whole answer', report.total),
  ];
  const how = report.tokensFrom === 'events' ? ' (counted events: no usage was reported)' : '';
  const cached =
    report.cachedShare === null
      ? ''
      : `, ${(report.cachedShare * 100).toFixed(0)} % of the prompt from caches`;
  return [
    `${report.requests} requests in ${report.elapsedSeconds} s${report.interrupted ? ', interrupted' : ''}: ${report.requestsPerSecond} requests/s, ${report.completionTokensPerSecond} tokens/s${how}${cached}`,
    '',
    ...table(rows),
    '',
    ...table([
      ['result', 'requests'],
      ...Object.entries(report.results).map(([name, count]) => [name, String(count)]),
    ]),
  ];
}

function timesRow(name: string, measured: Times | null): readonly string[] {
  if (measured === null) return [name, '-', '-', '-', '-', '0'];
  const { p50Ms, p90Ms, p99Ms, maxMs, count } = measured;
  return [name, ...[p50Ms, p90Ms, p99Ms, maxMs].map(shownMs), String(count)];
}

const shownMs = (ms: number): string =>
  ms >= 10_000 ? `${(ms / 1_000).toFixed(1)} s` : `${ms >= 100 ? ms.toFixed(0) : ms.toFixed(1)} ms`;

/** The first column to the left, numbers to the right. */
function table(rows: readonly (readonly string[])[]): string[] {
  const widths = rows[0]!.map((_, at) => Math.max(...rows.map((row) => (row[at] ?? '').length)));
  return rows.map((row) =>
    row
      .map((cell, at) => (at === 0 ? cell.padEnd(widths[at]!) : cell.padStart(widths[at]!)))
      .join('  ')
      .trimEnd(),
  );
}
