import type { Principal } from './authoriser.js';
import type { GatewayError } from './dialects.js';
import type { EndpointTable } from './endpoint-table.js';
import { shown } from './failure-words.js';
import type { ModelState } from './model-state.js';

/** The model that answers for the name a client used, or why none does. */
export type ResolvedModel =
  { readonly model: ModelState } | { readonly model: undefined; readonly error: GatewayError };

/** Finds a model by name or alias; a fallback stands in for one that has nothing to offer. */
export function resolveModel(table: EndpointTable, name: string, principal: Principal): ResolvedModel {
  const asked = findAllowed(table, name, principal);
  return asked.model === undefined ? asked : { model: table.serving(asked.model, principal) };
}

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
