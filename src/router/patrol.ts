import type { Agent } from 'undici';
import type { Clock, Timer } from '../shared/clock.js';
import type { Logger } from '../shared/logger.js';
import type { Random } from '../shared/random.js';
import type { EndpointState } from './endpoint-state.js';
import { probe, probeManner } from './prober.js';
import { isScraped, scrape } from './scraper.js';

/** How often it is looked whose turn it is. */
const TICK_MS = 250;
/** Longest wait for the first answers; who has not answered by then is unknown for a little longer. */
const FIRST_LOOK_MS = 1_000;
const SCRAPE_EVERY_MS = 5_000;
/** After an answer without metrics; an engine does not grow them while it runs. */
const SCRAPE_AGAIN_MS = 60_000;

const NOTHING_TO_DO = Promise.resolve();

export interface PatrolOptions {
  readonly clock: Clock;
  readonly random: Random;
  readonly logger: Logger;
  readonly agent: Agent;
  readonly endpoints: () => Iterable<EndpointState>;
  /** Replaces the engine kinds' own periods, for tests. */
  readonly everyMs?: number;
}

/** When an endpoint is looked at next. */
interface Rounds {
  probeAtMs: number;
  scrapeAtMs: number;
  probing: boolean;
  scraping: boolean;
  /** Whether the last probe found it well, so that only changes are logged. */
  healthy: boolean;
}

/**
 * Goes round the endpoints, asks them whether they live and how loaded they are, off the data path. Each has its own
 * turn and its own deadline: one that hangs delays nobody else's.
 */
export class Patrol {
  private readonly rounds = new WeakMap<EndpointState, Rounds>();
  private timer: Timer | undefined;
  private stopped = false;

  constructor(private readonly options: PatrolOptions) {}

  /** Settles when all were asked once, or did not answer soon. */
  async start(): Promise<void> {
    const now = this.options.clock.monotonicMs();
    const looks = Array.from(this.options.endpoints(), (endpoint) => this.lookAt(endpoint, now));
    let timer: Timer | undefined;
    const patience = new Promise<void>((resolve) => {
      timer = this.options.clock.setTimer(FIRST_LOOK_MS, resolve);
    });
    await Promise.race([Promise.all(looks), patience]);
    timer?.cancel();
    this.goOn();
  }

  private goOn(): void {
    if (!this.stopped) this.timer = this.options.clock.setTimer(TICK_MS, () => this.tick());
  }

  stop(): void {
    this.stopped = true;
    this.timer?.cancel();
  }

  private tick(): void {
    if (this.stopped) return;
    const now = this.options.clock.monotonicMs();
    for (const endpoint of this.options.endpoints()) void this.lookAt(endpoint, now);
    this.goOn();
  }

  /** Settles with the probe, if it is time for one. */
  private lookAt(endpoint: EndpointState, now: number): Promise<void> {
    const rounds = this.roundsOf(endpoint, now);
    if (now >= rounds.scrapeAtMs && !rounds.scraping && isScraped(endpoint.endpoint.engine)) {
      rounds.scrapeAtMs = now + SCRAPE_EVERY_MS;
      void this.scrape(endpoint, rounds);
    }
    if (now < rounds.probeAtMs || rounds.probing) return NOTHING_TO_DO;
    rounds.probeAtMs = now + this.period(endpoint);
    // Bytes of a running answer say more than any health page.
    if (endpoint.provedLifeSince(now - this.period(endpoint))) return NOTHING_TO_DO;
    return this.probe(endpoint, rounds);
  }

  private period(endpoint: EndpointState): number {
    return this.options.everyMs ?? probeManner(endpoint.endpoint.engine).everyMs;
  }

  private roundsOf(endpoint: EndpointState, now: number): Rounds {
    let rounds = this.rounds.get(endpoint);
    if (rounds === undefined) {
      const period = this.period(endpoint);
      // Not all at the same moment, and not at once: whoever was just published is known to be ready. But for those
      // that are only said to be there, which nobody can be told of before.
      const probeAtMs = endpoint.isUnknown ? now : now + period * (0.5 + this.options.random());
      const scrapeAtMs = now + SCRAPE_EVERY_MS * this.options.random();
      rounds = { probeAtMs, scrapeAtMs, probing: false, scraping: false, healthy: true };
      this.rounds.set(endpoint, rounds);
    }
    return rounds;
  }

  private async probe(endpoint: EndpointState, rounds: Rounds): Promise<void> {
    rounds.probing = true;
    const finding = await probe(endpoint.endpoint, probeManner(endpoint.endpoint.engine), this.options.agent);
    rounds.probing = false;
    if (this.stopped || endpoint.draining) return;
    endpoint.probed(finding.healthy, this.options.clock.monotonicMs());
    if (finding.healthy === rounds.healthy) return;
    rounds.healthy = finding.healthy;
    const fields = { endpoint: endpoint.id, generation: endpoint.generation };
    if (finding.healthy) this.options.logger.info(fields, 'the endpoint answers its probe again');
    else this.options.logger.warn({ ...fields, why: finding.why }, 'the endpoint does not answer its probe');
  }

  private async scrape(endpoint: EndpointState, rounds: Rounds): Promise<void> {
    rounds.scraping = true;
    const load = await scrape(endpoint.endpoint, this.options.agent);
    rounds.scraping = false;
    const now = this.options.clock.monotonicMs();
    if (load === undefined) rounds.scrapeAtMs = now + SCRAPE_AGAIN_MS;
    else endpoint.scraped(load, now);
  }
}
