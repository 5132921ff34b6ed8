import type { SplitVerdict } from '../domain/balancing/canary.js';
import type { Random } from '../shared/random.js';
import type { Principal } from './authoriser.js';
import type { GatewayError } from './dialects.js';
import type { EndpointTable } from './endpoint-table.js';
import { shown } from './failure-words.js';
import type { ModelState } from './model-state.js';

/** A model by the name a client used, or why there is none. */
export type ResolvedModel =
  { readonly model: ModelState } | { readonly model: undefined; readonly error: GatewayError };

/** The model of this name or alias, if the principal may use it. */
export function findAllowed(table: EndpointTable, name: string, principal: Principal): ResolvedModel {
  const asked = table.find(name);
  if (asked === undefined) {
    const message = `the model \`${shown(name)}\` does not exist`;
    return { model: undefined, error: { code: 'model_not_found', message, param: 'model' } };
  }
  if (!principal.mayUse(asked.info)) {
    const message = `this key may not use the model \`${shown(name)}\``;
    return { model: undefined, error: { code: 'model_not_allowed', message, param: 'model' } };
  }
  return { model: asked };
}

/** Why another model answers than the one asked for. */
export type StandInReason = 'canary' | 'nothing_ready' | 'attempts_failed';

/** The side of a split as it is shown: `stable`, or the name of the pool or model. */
export const sideName = ({ side }: SplitVerdict): string => (side === 'stable' ? side : side.name);

/** Which model a request goes to first. */
export interface Placing {
  readonly model: ModelState;
  /** Set when that is not the model asked for. */
  readonly because: StandInReason | undefined;
  /** What the split of the model asked for came to, where it has canaries and did not go to a fallback. */
  readonly split: SplitVerdict | undefined;
}

/**
 * Where a request for `asked` goes: to the model itself, to the canary it was drawn for, or to a fallback while nothing of
 * the model is ready. A canary that has nothing ready, or that the key may not use, leaves its share to the model.
 */
export function placeRequest(
  table: EndpointTable,
  asked: ModelState,
  principal: Principal,
  session: string | undefined,
  random: Random,
): Placing {
  const split = asked.split?.verdict(session, random);
  const canary =
    split === undefined || split.side === 'stable' || split.side.kind === 'pool'
      ? undefined
      : table.find(split.side.name);
  if (canary?.ready === true && principal.mayUse(canary.info)) {
    return { model: canary, because: 'canary', split };
  }
  if (!asked.ready) {
    const other = table.fallbackFor(asked, principal);
    if (other !== undefined) return { model: other, because: 'nothing_ready', split: undefined };
  }
  return { model: asked, because: undefined, split };
}
