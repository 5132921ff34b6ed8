import { Injectable, type OnApplicationShutdown } from '@nestjs/common';
import { monitorEventLoopDelay, type IntervalHistogram } from 'node:perf_hooks';
import { Gauge, register } from 'prom-client';
import { buildVersion } from '../shared/build-info.js';

/** How often the loop's delay is sampled, ms; a delay shorter than this is not one that users feel. */
const RESOLUTION_MS = 10;
const NANOSECONDS = 1e9;

/** Delay of the event loop since the last look, seconds. */
export interface EventLoopDelay {
  readonly p50: number;
  readonly p99: number;
  readonly max: number;
  readonly mean: number;
}

/** The process itself: its build, and whether its event loop keeps up. */
@Injectable()
export class ProcessMetrics implements OnApplicationShutdown {
  private readonly histogram: IntervalHistogram = monitorEventLoopDelay({ resolution: RESOLUTION_MS });

  constructor() {
    this.histogram.enable();
    const histogram = this.histogram;
    register.registerMetric(
      new Gauge({
        name: 'llmgw_event_loop_delay_seconds',
        help: 'Delay of the event loop since the last scrape.',
        labelNames: ['quantile'],
        registers: [],
        collect() {
          const delay = read(histogram);
          this.set({ quantile: '0.5' }, delay.p50);
          this.set({ quantile: '0.99' }, delay.p99);
          this.set({ quantile: '1' }, delay.max);
          histogram.reset();
        },
      }),
    );
    const build = new Gauge({
      name: 'llmgw_build_info',
      help: 'Version of this build; always 1.',
      labelNames: ['version', 'node'],
      registers: [],
    });
    build.set({ version: buildVersion(), node: process.versions.node }, 1);
    register.registerMetric(build);
  }

  /** Since the last scrape; does not start a new interval. */
  eventLoopDelay(): EventLoopDelay {
    return read(this.histogram);
  }

  onApplicationShutdown(): void {
    this.histogram.disable();
  }
}

/** The sampling interval itself is in the samples and no delay; an interval without samples has none. */
function read(histogram: IntervalHistogram): EventLoopDelay {
  const seconds = (nanoseconds: number) =>
    Number.isFinite(nanoseconds) ? Math.max(0, nanoseconds / NANOSECONDS - RESOLUTION_MS / 1_000) : 0;
  if (histogram.max === 0) return { p50: 0, p99: 0, max: 0, mean: 0 };
  return {
    p50: seconds(histogram.percentile(50)),
    p99: seconds(histogram.percentile(99)),
    max: seconds(histogram.max),
    mean: seconds(histogram.mean),
  };
}
