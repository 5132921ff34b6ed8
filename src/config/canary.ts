/** Canaries: what must hold of them, and from the configuration to what the router works with. */
import type { CanarySide } from '../domain/model-spec.js';
import type { ModelConfig } from './server-config.js';

/** The `canary` member of a model; nothing where it has none. One of `model` and `pool` is there: that was checked. */
export function withCanary(model: ModelConfig | undefined): { readonly canary?: readonly CanarySide[] } {
  if (model === undefined || model.canary.length === 0) return {};
  return {
    canary: model.canary.map(({ model: other, pool, weight }): CanarySide =>
      other === undefined
        ? { kind: 'pool', name: pool ?? '', weight }
        : { kind: 'model', name: other, weight },
    ),
  };
}
