import type { LearnedRates } from '../request/learned-rates.js';
import type { EndpointLoad } from './endpoint-load.js';
import type { ReusePrediction } from './prefix-cache-model.js';
import type { PromptChain } from './prompt-chain.js';

/** The balancing policies a routing profile may name. */
export const POLICY_NAMES = [
  'roundRobin',
  'leastLoad',
  'powerOfTwo',
  'sessionAffinity',
  'prefixAware',
] as const;

export type PolicyName = (typeof POLICY_NAMES)[number];

/**
 * What an endpoint's record of faults says about it right now.
 * `trial_due`: its time out is over and one request may show whether it works again; `trial_running`: that
 * request is on its way, so nobody else goes there yet.
 */
export type HealthVerdict = 'serving' | 'cooling_down' | 'ejected' | 'trial_due' | 'trial_running';

/** The part of an endpoint's health that choosing needs; `EndpointHealth` in `request/ejection.ts` is one. */
export interface HealthView {
  /** `nowMs` is monotonic, as everywhere in the domain. */
  verdict(nowMs: number): HealthVerdict;
}

/**
 * One endpoint as the balancer sees it. Long-lived: the router's own endpoint object carries these members, so that
 * choosing allocates nothing per candidate. Load and rates live and die with the generation.
 */
export interface Candidate {
  readonly id: string;
  /** A restarted replica is another generation: it has no load, no cache and no history. */
  readonly generation: number;
  /** Models (served names, LoRA adapters included) it answers for. */
  readonly models: ReadonlySet<string>;
  readonly pool: string;
  /** Relative share of load, > 0; 0 takes nothing new. */
  readonly weight: number;
  /** Most requests at once; `Infinity` where no limit is set. */
  readonly maxConcurrency: number;
  /** It finishes what it has and takes nothing new. */
  readonly draining: boolean;
  readonly load: EndpointLoad;
  readonly rates: LearnedRates;
  readonly health: HealthView;
}

/** Why an endpoint was not taken; `costlier` is the only one that a candidate in good standing gets. */
export type RejectReason =
  | 'not_serving_model'
  | 'draining'
  | 'zero_weight'
  | 'wrong_pool'
  | 'excluded_by_retry'
  | 'ejected'
  | 'trial_running'
  | 'cooling_down'
  | 'at_capacity'
  | 'over_bounded_load'
  | 'costlier';

/** What choosing needs to know of a request. */
export interface RequestFacts {
  readonly model: string;
  /** Pool wanted, for example by a canary split; undefined takes any. */
  readonly pool?: string | undefined;
  /** True: no endpoint of another pool will do. False: another pool serves when this one cannot. */
  readonly poolRequired?: boolean | undefined;
  /** Pools that are somebody else's side of a split: they serve only when no other can. */
  readonly otherSides?: readonly string[] | undefined;
  /** Pools that get nothing, whatever happens: canaries of weight 0. */
  readonly closedPools?: readonly string[] | undefined;
  /** Estimated prompt tokens (bytes over the model's learned bytes per token). */
  readonly promptTokens: number;
  /** Expected output tokens: `max_tokens` where small, else the model's learned mean. */
  readonly outputTokens: number;
  /** Session or user the request belongs to; `sessionAffinity` keeps equal keys together. */
  readonly sessionKey?: string | undefined;
  /** Hashes of the prompt's blocks; undefined when there is no text to compare. */
  readonly chain?: PromptChain | undefined;
}

/** Circumstances of one choice. */
export interface ChooseContext {
  readonly nowMs: number;
  /** Uniform in [0, 1). */
  readonly random: () => number;
  /** Ids of endpoints that already failed this request. */
  readonly tried: readonly string[];
  /** Fills `Choice.candidates`; costs an object per candidate. */
  readonly explain: boolean;
}

/** How one candidate looked at the moment of choosing. */
export interface CandidateVerdict {
  readonly endpoint: string;
  readonly generation: number;
  readonly outstandingRequests: number;
  readonly outstandingTokens: number;
  readonly predictedCachedTokens: number;
  /** Estimated seconds; lower is better. NaN where the policy computes none or the candidate was not ranked. */
  readonly costSeconds: number;
  /** Undefined for the chosen one. */
  readonly rejected: RejectReason | undefined;
}

/**
 * Why the chosen endpoint was taken.
 * `ranked`: the policy's best; `trial`: its time out ended and this request tests it; `last_resort`: all endpoints of
 * the model are ejected or cooling down, and trying beats a self-made outage.
 */
export type ChosenBecause = 'ranked' | 'trial' | 'last_resort';

/**
 * Why nothing was chosen.
 * `no_endpoint`: nothing serves the model in the wanted pool; `at_capacity`: waiting helps; `all_tried`: every
 * endpoint already failed this request.
 */
export type NotChosenBecause = 'no_endpoint' | 'at_capacity' | 'all_tried';

export type Choice<C extends Candidate> = Chosen<C> | NotChosen;

export interface Chosen<C extends Candidate> {
  readonly endpoint: C;
  readonly because: ChosenBecause;
  readonly policy: PolicyName;
  /** Prompt tokens the endpoint is expected to have cached; 0 for policies that do not look. */
  readonly predictedCachedTokens: number;
  /** To be handed to `PrefixIndex.learn` with what the engine reports; undefined where nothing was looked up. */
  readonly reuse: ReusePrediction | undefined;
  readonly costSeconds: number;
  readonly candidates: readonly CandidateVerdict[] | undefined;
}

export interface NotChosen {
  readonly endpoint: undefined;
  readonly because: NotChosenBecause;
  readonly policy: PolicyName;
  readonly candidates: readonly CandidateVerdict[] | undefined;
}
