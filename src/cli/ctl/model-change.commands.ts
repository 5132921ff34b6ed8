/** `ctl scale`, `restart`: how many copies of a model run, and new ones in place of old. */
import type { ModelDetailView, ModelResultView } from '../../admin-api/views/models.js';
import { OperatorError } from '../../shared/errors.js';
import { usageError, type CommanderCommand } from '../llmgw-command.js';
import { Option, SubCommand } from '../nest-commander-lean.js';
import { count, plain } from '../render/values.js';
import { confirm } from './confirm.js';
import type { AdminClient } from './admin-client.js';
import { CtlCommandBase, segment, unknownObject, type Answer } from './ctl-base.js';
import { getModel, getReplica } from './detail.commands.js';
import { overruled, waitForModel } from './model-wait.js';

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

const notACount = (given: string) => usageError(`replicas must be a whole number >= 0, got '${given}'`);

@SubCommand({
  name: 'scale',
  arguments: '<model> <replicas>',
  description: 'Change how many copies of a model run.',
})
export class CtlScaleCommand extends CtlCommandBase {
  protected override readonly examples = [
    ['llmgw ctl scale qwen 3', 'three copies, until the next scale'],
    ['llmgw ctl scale qwen 3 --wait', 'and return when all three serve'],
  ] as const;

  override setCommand(command: CommanderCommand): this {
    super.setCommand(command);
    // A number below zero looks like an option to the parser.
    command.exitOverride((error) => {
      const [, number] = /^error: unknown option '(-\d+)'/.exec(error.message) ?? [];
      throw number === undefined ? error : notACount(number);
    });
    return this;
  }

  @Option({ flags: '-y, --yes', description: 'do not ask' })
  parseYes(): boolean {
    return true;
  }

  @Option({ flags: '--wait', description: 'return when they are there; interrupting cancels nothing' })
  parseWait(): boolean {
    return true;
  }

  override async run(
    [given = '', replicas = '']: string[],
    options: { yes?: boolean; wait?: boolean },
  ): Promise<void> {
    this.refuseWatch();
    if (!/^\d{1,6}$/.test(replicas)) throw notACount(replicas);
    const { name, desired } = await modelToChange(this.client, given);
    if (Number(replicas) === 0 && desired > 0)
      await confirm(`stop all replicas of ${name}?`, options.yes === true);
    const result = await this.client.put<ModelResultView>(`models/${segment(name)}/scale`, {
      replicas: Number(replicas),
    });
    await this.showOnce(answer(result, `${count(result.desired, 'replica')} wanted, was ${desired}`));
    if (options.wait === true) await this.waitUntilScaled(name, result.desired);
  }

  /** Ends when exactly as many copies are there as were asked for, and all of them serve. */
  private waitUntilScaled(model: string, asked: number): Promise<void> {
    return waitForModel(this.client, this.clock, {
      model,
      what: 'the scaling',
      left: ({ replicas, ready, desired }) => {
        if (desired !== asked) throw overruled(model, desired);
        if (replicas.length === asked && ready === asked) return undefined;
        const surplus = replicas.length - asked;
        const leaving = surplus > 0 ? `, ${surplus} on the way out` : '';
        return `${ready} of ${asked} Ready${leaving}`;
      },
    });
  }
}

@SubCommand({
  name: 'restart',
  arguments: '<model-or-replica>',
  description: 'Replace the replicas of a model, or one of them: the new copy first, one after another.',
})
export class CtlRestartCommand extends CtlCommandBase {
  protected override readonly examples = [
    ['llmgw ctl restart qwen --wait', 'and return when every copy is a new one'],
    ['llmgw ctl restart qwen-x7k2p', 'one copy only'],
  ] as const;

  @Option({ flags: '--wait', description: 'return when it is done; interrupting cancels nothing' })
  parseWait(): boolean {
    return true;
  }

  @Option({
    flags: '--allow-gap',
    description: 'where nothing is spare, stop an old copy before the new one loads',
  })
  parseAllowGap(): boolean {
    return true;
  }

  override async run(
    [given = '']: string[],
    { wait, ...asked }: { wait?: boolean; allowGap?: boolean },
  ): Promise<void> {
    this.refuseWatch();
    const target = await this.target(given);
    const before = await this.running(target);
    const result = await this.client.post<ModelResultView>(`${target.path}/restart`, asked);
    const what = target.replica === undefined ? 'its replicas are being replaced' : 'is being replaced';
    await this.showOnce({ ...answer(result, what), names: [target.replica ?? target.model] });
    if (wait === true) await this.waitUntilReplaced(target, before);
  }

  /** A model by name or alias, else a replica by its whole id. */
  private async target(given: string): Promise<RestartTarget> {
    try {
      const { name } = await modelToChange(this.client, given);
      return { path: `models/${segment(name)}`, model: name };
    } catch (error) {
      if (!(error instanceof OperatorError) || error.code !== 'not_found') throw error;
      const replica = await getReplica(this.client, given).catch(() => undefined);
      if (replica === undefined) throw error;
      if (replica.id !== given) throw unknownObject('replica', given, [replica.id]);
      return { path: `replicas/${segment(given)}`, model: replica.model, replica: given };
    }
  }

  private async running({ model, replica }: RestartTarget): Promise<readonly string[]> {
    const { replicas } = await getModel(this.client, model);
    const meant = replicas.filter((one) => replica === undefined || one.id === replica);
    return meant.map(({ id, generation }) => `${id}@${generation}`);
  }

  /** Ends when none of the copies of before runs and as many serve as are wanted. */
  private waitUntilReplaced({ model }: RestartTarget, before: readonly string[]): Promise<void> {
    return waitForModel(this.client, this.clock, {
      model,
      what: 'the restart',
      left: ({ replicas, ready, desired }) => {
        const old = replicas.filter(({ id, generation }) => before.includes(`${id}@${generation}`));
        if (old.length === 0 && ready >= desired) return undefined;
        return `${count(old.length, 'old replica')} left, ${ready} of ${desired} Ready`;
      },
    });
  }
}

interface RestartTarget {
  readonly path: string;
  readonly model: string;
  /** Set when one copy is meant. */
  readonly replica?: string;
}
