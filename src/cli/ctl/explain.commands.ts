/** `ctl explain-placement`, `explain-request`: why. */
import type { PlacementView } from '../../admin-api/views/models.js';
import { Option, SubCommand } from '../nest-commander-lean.js';
import { renderPlacement } from '../render/explain-placement.js';
import { renderRequest, type RequestView } from '../render/explain-request.js';
import { CtlCommandBase, byIdOrPrefix, segment } from './ctl-base.js';
import { modelNames } from './detail.commands.js';

@SubCommand({
  name: 'explain-placement',
  arguments: '<model>',
  description: 'Show why replicas of a model stand where they stand, or nowhere.',
})
export class CtlExplainPlacementCommand extends CtlCommandBase {
  protected override readonly examples = [
    ['llmgw ctl explain-placement qwen', 'where the next replica would go, and what stands in the way'],
    ['llmgw ctl explain-placement qwen --replica r-1', 'the decision as it was made for one replica'],
  ] as const;

  @Option({ flags: '--replica <id>', description: 'the decision for this replica, as it was made' })
  parseReplica(value: string): string {
    return value;
  }

  override async run([model = '']: string[], options: { replica?: string }): Promise<void> {
    const query = { replica: options.replica };
    await this.show(async () => {
      const { client } = this;
      const view = await byIdOrPrefix(
        'model',
        model,
        () => modelNames(client),
        (name) => client.get<PlacementView>(`placements/${segment(name)}/explain`, query),
      );
      return { data: view, names: [view.model], lines: (surface) => renderPlacement(view, surface) };
    });
  }
}

@SubCommand({
  name: 'explain-request',
  arguments: '<request-id>',
  description: 'Show where a recent request went, why there, and how long each step took.',
})
export class CtlExplainRequestCommand extends CtlCommandBase {
  protected override readonly examples = [
    [
      'llmgw ctl explain-request 6f1c',
      'the id is in the x-request-id header of every answer; its beginning is enough',
    ],
  ] as const;

  override async run([id = '']: string[]): Promise<void> {
    await this.show(async () => {
      const view = await this.client.get<RequestView>(`requests/${segment(id)}/explain`);
      return { data: view, names: [view.requestId], lines: (surface) => renderRequest(view, surface) };
    });
  }
}
