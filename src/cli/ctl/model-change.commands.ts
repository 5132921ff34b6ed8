/** `ctl scale`, `restart`: how many copies of a model run, and new ones in place of old. */
import type { ModelDetailView, ModelResultView } from '../../admin-api/views.js';
import { OperatorError } from '../../shared/errors.js';
import { usageError } from '../llmgw-command.js';
import { Option, SubCommand } from '../nest-commander-lean.js';
import { count, plain } from '../render/values.js';
import { confirm } from './confirm.js';
import type { AdminClient } from './admin-client.js';
import { CtlCommandBase, segment, unknownObject, type Answer } from './ctl-base.js';
import { getModel, getReplica } from './detail.commands.js';

const answer = (result: ModelResultView, done: string): Answer => ({
  data: result,
  names: [result.model],
  lines: () => [
    `${plain(result.model)}: ${result.changed ? done : 'unchanged'}`,
    ...result.notes.map((note) => `  ${plain(note)}`),
  ],
});

/**
 * The model of exactly this name or alias. The beginning of a name is good enough to look at a model, not to change one:
 * a slip of the hand would otherwise scale whatever happens to begin so.
 */
async function modelToChange(client: AdminClient, given: string): Promise<ModelDetailView> {
  const model = await getModel(client, given);
  if (model.name !== given && !model.aliases.includes(given)) {
    throw unknownObject('model', given, [model.name, ...model.aliases]);
  }
  return model;
}

@SubCommand({
  name: 'scale',
  arguments: '<model> <replicas>',
  description: 'Change how many copies of a model run.',
})
export class CtlScaleCommand extends CtlCommandBase {
  protected override readonly examples = [
    ['llmgw ctl scale qwen 3', 'three copies, until the next scale'],
  ] as const;

  @Option({ flags: '-y, --yes', description: 'do not ask' })
  parseYes(): boolean {
    return true;
  }

  override async run([given = '', replicas = '']: string[], options: { yes?: boolean }): Promise<void> {
    this.refuseWatch();
    if (!/^\d{1,6}$/.test(replicas)) throw usageError(`expected a number of replicas, got '${replicas}'`);
    const { name, desired } = await modelToChange(this.client, given);
    if (Number(replicas) === 0 && desired > 0)
      await confirm(`stop all replicas of ${name}?`, options.yes === true);
    const result = await this.client.put<ModelResultView>(`models/${segment(name)}/scale`, {
      replicas: Number(replicas),
    });
    await this.showOnce(answer(result, `${count(result.desired, 'replica')} wanted, was ${desired}`));
  }
}

@SubCommand({
  name: 'restart',
  arguments: '<model>',
  description: 'Replace the replicas of a model one after another.',
})
export class CtlRestartCommand extends CtlCommandBase {
  override async run([given = '']: string[]): Promise<void> {
    this.refuseWatch();
    const name = await this.modelName(given);
    const result = await this.client.post<ModelResultView>(`models/${segment(name)}/restart`, {});
    await this.showOnce(answer(result, 'its replicas are being replaced'));
  }

  /** Restarting is a rolling change of the whole model; a replica's id only leads to its model. */
  private async modelName(given: string): Promise<string> {
    try {
      return (await modelToChange(this.client, given)).name;
    } catch (error) {
      if (!(error instanceof OperatorError) || error.code !== 'not_found') throw error;
      const replica = await getReplica(this.client, given).catch(() => undefined);
      if (replica === undefined) throw error;
      throw usageError(
        `${replica.id} is a replica of ${replica.model}`,
        `llmgw ctl restart ${replica.model}`,
      );
    }
  }
}
