import { ENTRY_BYTES, PrefixCacheModel } from './prefix-cache-model.js';
import type { DeliveredUsage, ReusePrediction } from './prefix-cache-model.js';
import type { PromptChain } from './prompt-chain.js';

/** All tables together, unless configured otherwise. */
export const DEFAULT_INDEX_BYTES = 64 << 20;
/** Entries of one endpoint's table while there is plenty of room: a good thousand prompts of 16 KB. */
const FULL_ENTRIES = 1 << 16;
/** Below this a table forgets a prompt before its next turn comes. */
const MIN_ENTRIES = 1 << 11;
/** A new table takes this share of what is left at most, so that there is always something left. */
const SHARE_OF_REST = 4;

/** Sums since the start, for `llmgw_prefix_*_tokens_total`. */
export interface ReuseTotals {
  readonly predictedTokens: number;
  readonly deliveredTokens: number;
}

/** Whose cache: an endpoint of a generation. */
export interface CacheOwner {
  readonly id: string;
  readonly generation: number;
}

/**
 * What the endpoints' prefix caches probably hold, for all models (a chain begins with its model's name), in a fixed
 * number of bytes. Tables are made when an endpoint first gets a prompt and reused when it goes; when there is no
 * room for another, the endpoint that was unused for longest gives up its own.
 */
export class PrefixIndex {
  /** In order of last use, so that the first is the one to give way. */
  private readonly models = new Map<string, PrefixCacheModel>();
  private spare: PrefixCacheModel[] = [];
  private allocatedBytes = 0;
  private intakeBytes = 0;
  private predictedTokens = 0;
  private deliveredTokens = 0;

  constructor(private readonly maxBytes = DEFAULT_INDEX_BYTES) {
    if (maxBytes < MIN_ENTRIES * ENTRY_BYTES) {
      throw new RangeError(
        `a prefix index needs at least ${MIN_ENTRIES * ENTRY_BYTES} bytes, got ${maxBytes}`,
      );
    }
  }

  /** Bytes of all tables; never above the bound, and never less than before. */
  get bytes(): number {
    return this.allocatedBytes;
  }

  /** Blocks remembered, over all endpoints. */
  get entries(): number {
    let entries = 0;
    for (const model of this.models.values()) entries += model.entries;
    return entries;
  }

  get totals(): ReuseTotals {
    return { predictedTokens: this.predictedTokens, deliveredTokens: this.deliveredTokens };
  }

  /** The model of `owner`'s cache, or undefined when it got no prompt yet in this generation. */
  find(owner: CacheOwner): PrefixCacheModel | undefined {
    const model = this.models.get(owner.id);
    return model?.generation === owner.generation ? model : undefined;
  }

  /** New text `owner` took in of late, bytes; see `PrefixCacheModel.recentIntake`. */
  recentIntake(owner: CacheOwner): number {
    return this.find(owner)?.recentIntake(this.intakeBytes) ?? 0;
  }

  /** The prompt goes to `owner`; what was expected to be cached there, for `learn`. */
  record(owner: CacheOwner, chain: PromptChain): ReusePrediction {
    const prediction = this.modelOf(owner).record(chain, this.intakeBytes);
    this.intakeBytes += prediction.promptBytes - prediction.predictedBytes;
    return prediction;
  }

  /** The engine reported what it really had cached. */
  learn(owner: CacheOwner, prediction: ReusePrediction, usage: DeliveredUsage): void {
    this.find(owner)?.learn(prediction, usage);
    if (!(prediction.promptBytes > 0)) return;
    const predictedShare = (prediction.predictedBytes * prediction.confidence) / prediction.promptBytes;
    this.predictedTokens += predictedShare * usage.promptTokens;
    this.deliveredTokens += usage.cachedTokens;
  }

  /** The engine tells how many tokens its KV cache holds; `bytesPerToken` as learned for the model. */
  setCacheTokens(owner: CacheOwner, tokens: number, bytesPerToken: number): void {
    this.find(owner)?.setWindowBytes(tokens * bytesPerToken);
  }

  /** The endpoint is gone; its table is free for the next one. */
  drop(id: string): void {
    const model = this.models.get(id);
    if (model === undefined) return;
    this.models.delete(id);
    this.spare.push(model);
  }

  private modelOf(owner: CacheOwner): PrefixCacheModel {
    let model = this.models.get(owner.id);
    if (model === undefined) {
      model = this.spare.pop() ?? this.allocate() ?? this.takeOldest();
      model.reassign(owner.generation);
    } else {
      this.models.delete(owner.id);
      if (model.generation !== owner.generation) model.restart(owner.generation);
    }
    this.models.set(owner.id, model);
    return model;
  }

  private allocate(): PrefixCacheModel | undefined {
    const rest = this.maxBytes - this.allocatedBytes;
    let entries = FULL_ENTRIES;
    while (entries > MIN_ENTRIES && entries * ENTRY_BYTES * SHARE_OF_REST > rest) entries /= 2;
    if (entries * ENTRY_BYTES > rest) return undefined;
    const model = new PrefixCacheModel(entries, 0);
    this.allocatedBytes += model.bytes;
    return model;
  }

  private takeOldest(): PrefixCacheModel {
    const [oldest] = this.models;
    if (oldest === undefined) throw new Error('a prefix index holds at least one table');
    this.models.delete(oldest[0]);
    return oldest[1];
  }
}
