import { bytesOfBlocks } from './prompt-chain.js';
import type { PromptChain } from './prompt-chain.js';

/** Entries per bucket: one bucket is a cache line of tags and one of stamps. */
const WAYS = 8;
/** Bytes per entry: a tag and a stamp of four each. */
export const ENTRY_BYTES = 8;

/** The clock counts text in this unit, so that 32 bits last for months of full load. */
const CLOCK_UNIT_BYTES = 64;

/** What an engine is taken to remember before anything is learned: a quarter of a million tokens, in bytes of text. */
const PRIOR_WINDOW_BYTES = 1 << 20;
const MIN_WINDOW_BYTES = 16 << 10;
const MAX_WINDOW_BYTES = 1 << 30;

/** Fleet intake after which an endpoint's own is forgotten to a third. */
const INTAKE_MEMORY_BYTES = 8 << 20;

/** Predictions below this many tokens are noise: chat templates and block sizes are of that order. */
const MIN_EVIDENCE_TOKENS = 64;
/** Weight of one observation. */
const CONFIDENCE_STEP = 0.05;
const WINDOW_STEP = 0.2;
const WINDOW_GROWTH = 1.03;

/** What was expected of an endpoint's cache when a request was sent to it; kept to compare with what came. */
export interface ReusePrediction {
  /** Text expected to be cached, bytes; of `promptBytes`. */
  readonly predictedBytes: number;
  /** Text the endpoint has seen at some time, bytes; at least `predictedBytes`. */
  readonly knownBytes: number;
  readonly promptBytes: number;
  /** Trust put in the prediction, see `PrefixCacheModel.confidence`. */
  readonly confidence: number;
  /** How much new text the endpoint had taken in since it last saw the end of the predicted part, bytes. */
  readonly predictedAgeBytes: number;
  /** The same for the end of the known part. */
  readonly knownAgeBytes: number;
}

/** What the engine reported in `usage`. */
export interface DeliveredUsage {
  readonly promptTokens: number;
  /** `prompt_tokens_details.cached_tokens`. */
  readonly cachedTokens: number;
  readonly completionTokens: number;
}

/**
 * What one endpoint generation probably holds in its prefix cache: the block hashes of the prompts sent to it, each
 * with the time it was last used, on a clock that counts the text the engine had to take in. An engine evicts by
 * least recent use, so a block is cached while less than a cache size of new text came after it; that size (the
 * window) is learned from what `usage` says was really cached.
 *
 * A bucketed table of two words per block, full from the start: it cannot grow, the oldest of a bucket makes room.
 * A block's every use is also a use of all blocks before it, so stamps never rise along a chain, and how much of a
 * prompt is cached can be found by binary search.
 */
export class PrefixCacheModel {
  private readonly tags: Uint32Array;
  private readonly stamps: Uint32Array;
  private readonly bucketMask: number;
  /** Text taken in so far, in clock units; wraps. */
  private clock = 1;
  /** Clock units since the generation began; entries older than that belong to the one before. */
  private lived = 0;
  private windowUnits = PRIOR_WINDOW_BYTES / CLOCK_UNIT_BYTES;
  private trust = 1;
  private used = 0;
  /** New text of late, bytes, fading; see `recentIntake`. */
  private intake = 0;
  private intakeAt = 0;

  /** @param entries a power of two, at least 8 */
  constructor(
    entries: number,
    public generation: number,
  ) {
    this.tags = new Uint32Array(entries);
    this.stamps = new Uint32Array(entries);
    this.bucketMask = entries / WAYS - 1;
  }

  get bytes(): number {
    return this.tags.byteLength + this.stamps.byteLength;
  }

  /** Entries ever filled; those that went out of date count until they are overwritten. */
  get entries(): number {
    return this.used;
  }

  /** Cache size the engine is believed to have, bytes of prompt text. */
  get windowBytes(): number {
    return this.windowUnits * CLOCK_UNIT_BYTES;
  }

  /** Share of predicted tokens that really turn out cached, 0 to 1; near 0 for an engine without a prefix cache. */
  get confidence(): number {
    return this.trust;
  }

  /** A new generation starts cold: what the old one held is out of date from now on, at no cost. */
  restart(generation: number): void {
    this.generation = generation;
    // One unit, so that nothing stamped before can pass for stamped after.
    this.clock = (this.clock + 1) >>> 0;
    this.lived = 0;
    this.trust = 1;
    this.intake = 0;
  }

  /** The table is to serve another endpoint, about which nothing was learned yet. */
  reassign(generation: number): void {
    this.restart(generation);
    this.windowUnits = PRIOR_WINDOW_BYTES / CLOCK_UNIT_BYTES;
  }

  /** Sets the cache size where the engine tells it (blocks x block size), in bytes of text. */
  setWindowBytes(bytes: number): void {
    this.windowUnits = clampWindow(bytes / CLOCK_UNIT_BYTES);
  }

  /** Blocks at the beginning of `chain` that are probably cached. */
  cachedBlocks(chain: PromptChain): number {
    const window = Math.min(this.windowUnits, this.lived);
    if (chain.blocks === 0 || this.ageOf(chain, 0) > window) return 0;
    // Most prompts share nothing or little with most endpoints: gallop from the start, then halve.
    let cached = 1;
    let beyond = 2;
    while (beyond <= chain.blocks && this.ageOf(chain, beyond - 1) <= window) {
      cached = beyond;
      beyond *= 2;
    }
    beyond = Math.min(beyond, chain.blocks + 1);
    while (beyond - cached > 1) {
      const middle = (cached + beyond) >> 1;
      if (this.ageOf(chain, middle - 1) <= window) cached = middle;
      else beyond = middle;
    }
    return cached;
  }

  /**
   * New text the endpoint took in of late, bytes: what pushes older text out of its cache. Time is the whole fleet's
   * intake, so that a quiet night forgets nothing.
   * @param fleetIntakeBytes the fleet's intake since the start
   */
  recentIntake(fleetIntakeBytes: number): number {
    return this.intake * Math.exp((this.intakeAt - fleetIntakeBytes) / INTAKE_MEMORY_BYTES);
  }

  /**
   * The request goes to this endpoint: from now on its text counts as cached. Returns what was expected before.
   * @param fleetIntakeBytes see `recentIntake`
   */
  record(chain: PromptChain, fleetIntakeBytes: number): ReusePrediction {
    const cached = this.cachedBlocks(chain);
    let known = 0;
    let knownAge = 0;
    const predictedAge = cached === 0 ? 0 : this.ageOf(chain, cached - 1);
    for (let block = 0; block < chain.blocks; block++) {
      const age = this.touch(chain, block);
      if (known === block && age <= this.lived) {
        known = block + 1;
        knownAge = age;
      }
    }
    const cachedBytes = bytesOfBlocks(cached);
    const fresh = chain.bytes - cachedBytes;
    // Using old text again pushes back what is younger, as new text does; using young text pushes back nothing.
    this.advance(fresh + cachedBytes * Math.min(1, predictedAge / this.windowUnits));
    this.intake = this.recentIntake(fleetIntakeBytes) + fresh;
    this.intakeAt = fleetIntakeBytes;
    return {
      predictedBytes: cachedBytes,
      knownBytes: bytesOfBlocks(Math.max(known, cached)),
      promptBytes: chain.bytes,
      confidence: this.trust,
      predictedAgeBytes: predictedAge * CLOCK_UNIT_BYTES,
      knownAgeBytes: knownAge * CLOCK_UNIT_BYTES,
    };
  }

  /**
   * Compares a prediction with what the engine reported, and learns from the difference. Only to be called when the
   * engine reports cached tokens at all: an absent number is unknown, not zero.
   */
  learn(prediction: ReusePrediction, usage: DeliveredUsage): void {
    if (!(usage.promptTokens > 0) || !(prediction.promptBytes > 0)) return;
    const tokensPerByte = usage.promptTokens / prediction.promptBytes;
    // What was taken for cached and had to be computed after all was taken in as well, so far as it did not count yet.
    const missedBytes = Math.max(0, prediction.predictedBytes - usage.cachedTokens / tokensPerByte);
    const counted = Math.min(1, prediction.predictedAgeBytes / CLOCK_UNIT_BYTES / this.windowUnits);
    this.advance(missedBytes * (1 - counted) + usage.completionTokens / tokensPerByte);
    const predicted = prediction.predictedBytes * tokensPerByte;
    const known = prediction.knownBytes * tokensPerByte;
    const predictedAge = prediction.predictedAgeBytes / CLOCK_UNIT_BYTES;
    const knownAge = prediction.knownAgeBytes / CLOCK_UNIT_BYTES;
    if (known - predicted >= MIN_EVIDENCE_TOKENS && usage.cachedTokens >= (known + predicted) / 2) {
      // Older text than we believed was still there.
      this.moveWindow(Math.max(this.windowUnits, knownAge));
    }
    if (predicted < MIN_EVIDENCE_TOKENS) return;
    const share = Math.min(1, usage.cachedTokens / predicted);
    const young = predictedAge < this.windowUnits / 4;
    // Young text that is missing speaks against caching as such; old text that is missing, against its size.
    if (young) this.trust += (share - this.trust) * CONFIDENCE_STEP;
    else if (share < 0.5) this.moveWindow(Math.min(this.windowUnits, predictedAge));
    else if (share > 0.8 && predictedAge > this.windowUnits * 0.7) {
      this.windowUnits = clampWindow(this.windowUnits * WINDOW_GROWTH);
    }
  }

  private moveWindow(towards: number): void {
    this.windowUnits = clampWindow(this.windowUnits + (towards - this.windowUnits) * WINDOW_STEP);
  }

  private advance(bytes: number): void {
    const units = Math.ceil(Math.max(0, bytes) / CLOCK_UNIT_BYTES);
    this.clock = (this.clock + units) >>> 0;
    this.lived = Math.min(this.lived + units, MAX_WINDOW_BYTES / CLOCK_UNIT_BYTES);
  }

  /** Clock units since the block was last used; Infinity when it is not in the table. */
  private ageOf(chain: PromptChain, block: number): number {
    const tag = chain.words[2 * block]! || 1;
    const first = (chain.words[2 * block + 1]! & this.bucketMask) * WAYS;
    for (let at = first; at < first + WAYS; at++) {
      if (this.tags[at] === tag) return (this.clock - this.stamps[at]!) >>> 0;
    }
    return Number.POSITIVE_INFINITY;
  }

  /** Stamps the block as used now, taking the place of the bucket's oldest when it is new. Returns its age before. */
  private touch(chain: PromptChain, block: number): number {
    const tag = chain.words[2 * block]! || 1;
    const first = (chain.words[2 * block + 1]! & this.bucketMask) * WAYS;
    let oldest = first;
    let oldestAge = -1;
    for (let at = first; at < first + WAYS; at++) {
      if (this.tags[at] === tag) {
        const age = (this.clock - this.stamps[at]!) >>> 0;
        this.stamps[at] = this.clock;
        return age;
      }
      const age = this.tags[at] === 0 ? Number.POSITIVE_INFINITY : (this.clock - this.stamps[at]!) >>> 0;
      if (age > oldestAge) {
        oldest = at;
        oldestAge = age;
      }
    }
    if (this.tags[oldest] === 0) this.used += 1;
    this.tags[oldest] = tag;
    this.stamps[oldest] = this.clock;
    return Number.POSITIVE_INFINITY;
  }
}

function clampWindow(units: number): number {
  const min = MIN_WINDOW_BYTES / CLOCK_UNIT_BYTES;
  const max = MAX_WINDOW_BYTES / CLOCK_UNIT_BYTES;
  return Math.min(max, Math.max(min, units));
}
