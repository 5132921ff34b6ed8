import type { RemovedView } from '../../admin-api/views/answers.js';
import { Option, SubCommand } from '../nest-commander-lean.js';
import { plain } from '../render/values.js';
import { confirm } from './confirm.js';
import { CtlCommandBase, segment, unknownObject } from './ctl-base.js';
import { getNode } from './detail.commands.js';

@SubCommand({ name: 'remove', arguments: '<node>', description: 'Forget a machine that will not come back.' })
export class CtlRemoveNodeCommand extends CtlCommandBase {
  @Option({ flags: '-y, --yes', description: 'do not ask' })
  parseYes(): boolean {
    return true;
  }

  override async run([given = '']: string[], options: { yes?: boolean }): Promise<void> {
    this.refuseWatch();
    const { id } = await getNode(this.client, given);
    // What begins so may be another machine; that it is forgotten cannot be taken back.
    if (id !== given) throw unknownObject('node', given, [id]);
    await confirm(`forget ${id} and everything decided for it?`, options.yes === true);
    const result = await this.client.delete<RemovedView>(`nodes/${segment(id)}`);
    await this.showOnce({
      data: result,
      names: [result.removed],
      lines: () => [`${plain(result.removed)}: removed`],
    });
  }
}
