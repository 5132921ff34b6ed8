import type { ListView } from '../../admin-api/views/answers.js';
import type { ModelSummaryView, ModelTrafficView } from '../../admin-api/views/models.js';
import type { EndpointView } from '../../admin-api/views/replicas.js';
import type { StatusView } from '../../admin-api/views/status.js';
import { OperatorError } from '../../shared/errors.js';
import { SubCommand } from '../nest-commander-lean.js';
import { renderTop, type TopData } from '../render/top.js';
import { CtlCommandBase } from './ctl-base.js';

@SubCommand({ name: 'top', description: 'Show load and rates, again and again on a terminal.' })
export class CtlTopCommand extends CtlCommandBase {
  protected override readonly watchesOnTerminal = true;

  override async run(): Promise<void> {
    let before: TopData | undefined;
    await this.show(async () => {
      const now = await this.look();
      const last = before;
      before = now;
      return {
        data: now,
        names: now.endpoints.map(({ id }) => id),
        lines: (surface) => renderTop(now, last, surface),
      };
    });
  }

  private async look(): Promise<TopData> {
    const [status, endpoints, models, traffic] = await Promise.all([
      this.client.get<StatusView>('status'),
      this.client.get<ListView<EndpointView>>('endpoints'),
      this.models(),
      this.client.get<ListView<ModelTrafficView>>('traffic'),
    ]);
    return { status, endpoints: endpoints.items, models, traffic: traffic.items };
  }

  /** A router-only server has none, and says so with a 404. */
  private async models(): Promise<readonly ModelSummaryView[]> {
    try {
      return (await this.client.get<ListView<ModelSummaryView>>('models')).items;
    } catch (error) {
      if (error instanceof OperatorError && error.code === 'not_found') return [];
      throw error;
    }
  }
}
