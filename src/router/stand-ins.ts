import type { SplitVerdict } from '../domain/balancing/canary.js';
import { FALLBACK_HEADER, headerText } from './answer-heads.js';
import type { ExchangeFacts, RouterCore } from './exchange-account.js';
import type { ModelState } from './model-state.js';
import { placeRequest, sideName, type StandInReason } from './resolve-model.js';
import type { ReadBody } from './request-body.js';
import type { RoutedRequest } from './tries.js';

/** The models of one request: the one asked for, and those that take its place. Whoever asks later finds it noted. */
export class StandIns {
  /** The model asked for, then those that had the request. */
  private readonly visited: ModelState[] = [];

  constructor(
    private readonly core: Pick<RouterCore, 'table' | 'random' | 'profiles'>,
    private readonly facts: ExchangeFacts,
  ) {}

  /** The request as the first model gets it. */
  begin(asked: ModelState, body: ReadBody): RoutedRequest {
    const { core, facts } = this;
    const { head, route, principal, trace, arrivedMs } = facts;
    const placing = placeRequest(core.table, asked, principal, head.session, core.random);
    const { model, because } = placing;
    this.visited.push(asked);
    if (placing.split !== undefined) trace.split = sideName(placing.split);
    const split = model === asked ? placing.split : this.splitOf(model);
    this.note(model, because);
    const profile = core.profiles.select(head.profile, model.info.routingProfile);
    const promptTokens = model.sizes.promptTokens(body.promptBytes);
    const outputTokens = model.sizes.expectedOutputTokens(body.maxTokens, body.choices);
    facts.profile = profile;
    facts.promptBytes = body.promptBytes;
    facts.promptTokens = promptTokens;
    facts.choices = body.choices;
    trace.routingProfile = profile.name;
    trace.estimatedPromptTokens = promptTokens;
    return { head, route, body, model, profile, arrivedMs, split, promptTokens, outputTokens };
  }

  /**
   * The request as the next model gets it: the one asked for where only its canary had it, else a fallback; undefined
   * when nobody is left. `failed`: attempts were made, and failed.
   */
  next(request: RoutedRequest, failed: boolean): RoutedRequest | undefined {
    const { visited } = this;
    const [asked] = visited;
    if (asked === undefined) return undefined;
    const { principal, trace } = this.facts;
    const back = request.model !== asked && trace.insteadBecause === 'canary' && asked.ready;
    const model = back ? asked : this.core.table.fallbackFor(asked, principal, visited);
    if (model === undefined) return undefined;
    this.note(model, back ? undefined : failed ? 'attempts_failed' : 'nothing_ready');
    return {
      ...request,
      model,
      split: this.splitOf(model),
      promptTokens: model.sizes.promptTokens(request.body.promptBytes),
      outputTokens: model.sizes.expectedOutputTokens(request.body.maxTokens, request.body.choices),
    };
  }

  /** A model that stands in has pools of its own to share out: those of two models may well be called alike. */
  private splitOf(model: ModelState): SplitVerdict | undefined {
    return model.split?.verdict(this.facts.head.session, this.core.random);
  }

  private note(model: ModelState, because: StandInReason | undefined): void {
    const { visited } = this;
    const { answer, trace } = this.facts;
    const [asked] = visited;
    if (!visited.includes(model)) visited.push(model);
    this.facts.model = model;
    trace.model = model.name;
    trace.insteadBecause = because;
    trace.insteadOf = because === undefined ? undefined : asked?.name;
    const fallback = because !== undefined && because !== 'canary';
    // Only a second model can find the header of a first one there.
    if (fallback || visited.length > 1) {
      answer.setHeader(FALLBACK_HEADER, fallback ? headerText(model.name) : undefined);
    }
    if (fallback) asked?.series.fallbacks.add(because);
  }
}
