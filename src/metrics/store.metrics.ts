import { Histogram, register } from 'prom-client';

const BUCKETS_SECONDS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1];

/** Duration of the store's writes. Made before the store is opened, so that its first write counts too. */
export class StoreMetrics {
  private readonly seconds = new Histogram({
    name: 'llmgw_store_write_seconds',
    help: 'Time of one write to the state store, the sync to the disk included.',
    buckets: BUCKETS_SECONDS,
    registers: [register],
  });

  written(durationMs: number): void {
    this.seconds.observe(durationMs / 1_000);
  }
}
