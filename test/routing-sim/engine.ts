import type { SimRequest } from './workloads.js';

/** Tokens per block of the simulated engines' caches. */
export const TOKENS_PER_BLOCK = 64;

/** A replica's hardware, in the terms of a continuous-batching engine with chunked prefill. */
export interface EngineSpec {
  readonly prefillTokensPerSecond: number;
  /** Cost of a step whatever it holds, ms: weights have to be read once. */
  readonly stepMs: number;
  /** Cost of each running sequence in a step, ms. */
  readonly stepPerSequenceMs: number;
  /** Tokens computed in one step at most, decode first. */
  readonly stepTokens: number;
  /** KV cache, blocks; running requests and the prefix cache share it. */
  readonly cacheBlocks: number;
  readonly maxSequences: number;
}

/** A mid-size model on one data-centre GPU. */
export const STANDARD_ENGINE: EngineSpec = {
  prefillTokensPerSecond: 10_000,
  stepMs: 8,
  stepPerSequenceMs: 0.1,
  stepTokens: 2_048,
  cacheBlocks: 2_400,
  maxSequences: 128,
};

/** One request inside an engine. */
interface Sequence {
  readonly request: SimRequest;
  prefillLeft: number;
  outputLeft: number;
  cachedTokens: number;
  privateBlocks: number;
}

/** What happened in a step. */
export interface EngineEvents {
  readonly firstTokens: { request: SimRequest; cachedTokens: number }[];
  readonly finished: { request: SimRequest; cachedTokens: number }[];
}

/**
 * A replica as a queueing model: requests wait first come first served for memory and a place in the batch; each step
 * computes one token for every decoding sequence and fills the rest of its budget with prefill. Blocks stay cached
 * after a request ends until newer ones need their room (least recently used first, tails before heads).
 */
export class SimEngine {
  private readonly waiting: Sequence[] = [];
  private readonly running: Sequence[] = [];
  private readonly resident: Uint8Array;
  private readonly pins: Int32Array;
  private readonly older: Int32Array;
  private readonly newer: Int32Array;
  private oldest = -1;
  private newest = -1;
  private usedBlocks = 0;
  private step: { prefilled: Sequence[] } | undefined;
  private nextWaiting = 0;

  constructor(
    readonly spec: EngineSpec,
    blockIds: number,
  ) {
    this.resident = new Uint8Array(blockIds);
    this.pins = new Int32Array(blockIds);
    this.older = new Int32Array(blockIds).fill(-1);
    this.newer = new Int32Array(blockIds).fill(-1);
  }

  get waitingRequests(): number {
    return this.waiting.length - this.nextWaiting;
  }

  get runningRequests(): number {
    return this.running.length;
  }

  submit(request: SimRequest): void {
    this.waiting.push({
      request,
      prefillLeft: 0,
      outputLeft: request.outputTokens,
      cachedTokens: 0,
      privateBlocks: 0,
    });
  }

  /** Begins a step; its length in ms, or undefined when there is nothing to do or one is under way. */
  startStep(): number | undefined {
    if (this.step !== undefined) return undefined;
    this.admit();
    if (this.running.length === 0) return undefined;
    let decoding = 0;
    for (const sequence of this.running) if (sequence.prefillLeft === 0) decoding += 1;
    let budget = this.spec.stepTokens - decoding;
    let prefillTokens = 0;
    const prefilled: Sequence[] = [];
    for (const sequence of this.running) {
      if (sequence.prefillLeft === 0 || budget <= 0) continue;
      const chunk = Math.min(budget, sequence.prefillLeft);
      sequence.prefillLeft -= chunk;
      budget -= chunk;
      prefillTokens += chunk;
      if (sequence.prefillLeft === 0) prefilled.push(sequence);
    }
    this.step = { prefilled };
    const { stepMs, stepPerSequenceMs, prefillTokensPerSecond } = this.spec;
    return stepMs + stepPerSequenceMs * decoding + (1000 * prefillTokens) / prefillTokensPerSecond;
  }

  /** Ends the step under way. */
  endStep(): EngineEvents {
    const events: EngineEvents = { firstTokens: [], finished: [] };
    const prefilled = this.step!.prefilled;
    this.step = undefined;
    let kept = 0;
    for (const sequence of this.running) {
      const first = prefilled.includes(sequence);
      if (sequence.prefillLeft === 0) sequence.outputLeft -= 1;
      const { request, cachedTokens } = sequence;
      if (first) events.firstTokens.push({ request, cachedTokens });
      if (sequence.prefillLeft > 0 || sequence.outputLeft > 0) this.running[kept++] = sequence;
      else {
        this.finish(sequence);
        events.finished.push({ request, cachedTokens });
      }
    }
    this.running.length = kept;
    return events;
  }

  private admit(): void {
    while (this.nextWaiting < this.waiting.length && this.running.length < this.spec.maxSequences) {
      const sequence = this.waiting[this.nextWaiting]!;
      if (!this.place(sequence)) break;
      this.running.push(sequence);
      this.nextWaiting += 1;
      if (this.nextWaiting > 256) {
        this.waiting.splice(0, this.nextWaiting);
        this.nextWaiting = 0;
      }
    }
  }

  /** Reserves room for prompt and output; false when there is none. */
  private place(sequence: Sequence): boolean {
    const { request } = sequence;
    let cached = 0;
    while (cached < request.blocks.length && this.resident[request.blocks[cached]!] === 1) cached += 1;
    const total = Math.ceil((request.promptTokens + request.outputTokens) / TOKENS_PER_BLOCK);
    for (let at = 0; at < cached; at++) this.pin(request.blocks[at]!);
    const needed = total - cached;
    if (!this.makeRoom(needed)) {
      for (let at = cached - 1; at >= 0; at--) this.unpin(request.blocks[at]!);
      return false;
    }
    for (let at = cached; at < request.blocks.length; at++) {
      const block = request.blocks[at]!;
      // A hole further down the chain may still be resident from before.
      if (this.resident[block] === 0) {
        this.resident[block] = 1;
        this.usedBlocks += 1;
      }
      this.pin(block);
    }
    sequence.privateBlocks = total - request.blocks.length;
    this.usedBlocks += sequence.privateBlocks;
    sequence.cachedTokens = Math.min(cached * TOKENS_PER_BLOCK, request.promptTokens - 1);
    sequence.prefillLeft = request.promptTokens - sequence.cachedTokens;
    return true;
  }

  private makeRoom(needed: number): boolean {
    while (this.spec.cacheBlocks - this.usedBlocks < needed) {
      const block = this.oldest;
      if (block < 0) return false;
      this.unlink(block);
      this.resident[block] = 0;
      this.usedBlocks -= 1;
    }
    return true;
  }

  private finish(sequence: Sequence): void {
    const { request } = sequence;
    this.usedBlocks -= sequence.privateBlocks;
    // What was generated is cached too, where the next turn of the conversation will ask for it.
    for (let at = request.blocksWithAnswer.length - 1; at >= request.blocks.length; at--) {
      const block = request.blocksWithAnswer[at]!;
      if (this.resident[block] === 1 || !this.makeRoom(1)) continue;
      this.resident[block] = 1;
      this.usedBlocks += 1;
      this.append(block);
    }
    for (let at = request.blocks.length - 1; at >= 0; at--) this.unpin(request.blocks[at]!);
  }

  private pin(block: number): void {
    if (this.pins[block] === 0 && this.isListed(block)) this.unlink(block);
    this.pins[block]! += 1;
  }

  private unpin(block: number): void {
    this.pins[block]! -= 1;
    if (this.pins[block] === 0) this.append(block);
  }

  private isListed(block: number): boolean {
    return this.oldest === block || this.older[block]! >= 0;
  }

  private append(block: number): void {
    this.older[block] = this.newest;
    this.newer[block] = -1;
    if (this.newest >= 0) this.newer[this.newest] = block;
    else this.oldest = block;
    this.newest = block;
  }

  private unlink(block: number): void {
    const older = this.older[block]!;
    const newer = this.newer[block]!;
    if (older >= 0) this.newer[older] = newer;
    else this.oldest = newer;
    if (newer >= 0) this.older[newer] = older;
    else this.newest = older;
    this.older[block] = -1;
    this.newer[block] = -1;
  }
}
