import type { Principal } from './authoriser.js';
import type { EndpointTable } from './endpoint-table.js';
import type { ModelState } from './model-state.js';

/** Whether a model can be asked now; shown with `?all=true`. */
export type ModelReadiness = 'ready' | 'loading' | 'off' | 'unavailable';

interface ListedModel {
  readonly id: string;
  readonly object: 'model';
  readonly created: number;
  readonly owned_by: string;
  /** The model an alias stands for. */
  readonly root?: string;
  readonly state?: ModelReadiness;
}

/**
 * `GET /v1/models` from the gateway's own state: no engine is asked, so none that is down can spoil the list.
 * Shown is what can be served now; aliases are ids like any other, since clients choose from this list.
 */
export class ModelList {
  constructor(
    private readonly table: EndpointTable,
    /** Seconds since the epoch, the same for every model: OpenAI's field has no other use here. */
    private readonly createdSeconds: number,
  ) {}

  list(principal: Principal, all: boolean): object {
    const data: ListedModel[] = [];
    for (const model of this.table.models()) {
      if (!principal.mayUse(model.info) || !(all || model.servable)) continue;
      data.push(this.entry(model.name, model, all));
      for (const alias of model.info.aliases) {
        if (this.table.find(alias) === model) data.push(this.entry(alias, model, all));
      }
    }
    return { object: 'list', data };
  }

  /** One model under the name it was asked for. */
  entry(id: string, model: ModelState, all: boolean): ListedModel {
    return {
      id,
      object: 'model',
      created: this.createdSeconds,
      owned_by: 'llmgw',
      ...(id === model.name ? {} : { root: model.name }),
      ...(all ? { state: readiness(model) } : {}),
    };
  }
}

function readiness(model: ModelState): ModelReadiness {
  if (model.servable) return 'ready';
  if (model.info.outlook === 'coming') return 'loading';
  return model.info.desired === 0 ? 'off' : 'unavailable';
}
