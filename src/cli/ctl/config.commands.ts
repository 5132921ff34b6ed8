/** `ctl config`: what a running server is configured to do. */
import type { ReloadResultView } from '../../admin-api/views.js';
import { GroupCommand } from '../llmgw-command.js';
import { SubCommand } from '../nest-commander-lean.js';
import { renderReload } from '../render/config-changes.js';
import { CtlCommandBase } from './ctl-base.js';

@SubCommand({
  name: 'reload',
  description:
    "Read the server's configuration again and put it in force; what is not valid changes nothing.",
})
export class CtlConfigReloadCommand extends CtlCommandBase {
  override async run(): Promise<void> {
    this.refuseWatch();
    const result = await this.client.post<ReloadResultView>('config/reload', {});
    await this.showOnce({
      data: result,
      names: result.models.map(({ model }) => model),
      lines: (surface) => renderReload(result, surface),
    });
  }
}

@SubCommand({
  name: 'config',
  description: 'Have a running server take its configuration over.',
  subCommands: [CtlConfigReloadCommand],
})
export class CtlConfigCommand extends GroupCommand {}
