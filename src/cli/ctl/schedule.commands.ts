/** `ctl cordon`, `uncordon`, `drain`: what may run on a machine. */
import type { SchedulingResultView } from '../../admin-api/views/nodes.js';
import { parseDuration } from '../../config/units.js';
import { usageError } from '../llmgw-command.js';
import { Option, SubCommand } from '../nest-commander-lean.js';
import { renderDrainPlan, renderSchedulingResult } from '../render/drain.js';
import { confirm } from './confirm.js';
import { CtlCommandBase, segment, type Answer } from './ctl-base.js';
import { getNode } from './detail.commands.js';
import { DrainWait } from './drain-wait.js';

abstract class SchedulingCommand extends CtlCommandBase {
  protected async schedule(
    node: string,
    body: Readonly<Record<string, unknown>>,
    plan: boolean,
  ): Promise<SchedulingResultView> {
    const path = `nodes/${segment(node)}/scheduling`;
    return this.client.put<SchedulingResultView>(path, body, plan ? { plan: true } : {});
  }

  protected async change(given: string, body: Readonly<Record<string, unknown>>): Promise<void> {
    this.refuseWatch();
    const { id } = await getNode(this.client, given);
    await this.showOnce(resultAnswer(await this.schedule(id, body, false)));
  }
}

const resultAnswer = (result: SchedulingResultView): Answer => ({
  data: result,
  names: [result.node],
  lines: (surface) => renderSchedulingResult(result, surface),
});

@SubCommand({
  name: 'cordon',
  arguments: '<node>',
  description: 'Place nothing new on a machine; what runs goes on.',
})
export class CtlCordonCommand extends SchedulingCommand {
  @Option({ flags: '--reason <text>', description: 'why, for events and the audit log' })
  parseReason(value: string): string {
    return value;
  }

  override async run([node = '']: string[], options: { reason?: string }): Promise<void> {
    await this.change(node, { target: 'cordoned', ...options });
  }
}

@SubCommand({
  name: 'uncordon',
  arguments: '<node>',
  description: 'Let a machine take replicas again; cancels a drain.',
})
export class CtlUncordonCommand extends SchedulingCommand {
  override async run([node = '']: string[]): Promise<void> {
    await this.change(node, { target: 'schedulable' });
  }
}

interface DrainOptions {
  readonly gpu?: string;
  readonly plan?: boolean;
  readonly wait?: boolean;
  readonly deadline?: string;
  readonly streamGrace?: string;
  readonly allowGap?: boolean;
  readonly reason?: string;
  readonly yes?: boolean;
}

@SubCommand({
  name: 'drain',
  arguments: '<node>',
  description: 'Move everything off a machine without failing a request.',
})
export class CtlDrainCommand extends SchedulingCommand {
  protected override readonly examples = [
    ['llmgw ctl drain n1 --plan', 'what would move where, without doing it'],
    ['llmgw ctl drain n1 --wait', 'and return when nothing runs there any more'],
    ['llmgw ctl drain n1 --gpu GPU-1a2b', 'one device only'],
  ] as const;

  @Option({ flags: '--gpu <uuid>', description: 'only this device' })
  parseGpu(value: string): string {
    return value;
  }

  @Option({ flags: '--plan', description: 'show what would move where, and do nothing' })
  parsePlan(): boolean {
    return true;
  }

  @Option({ flags: '--wait', description: 'return when it is done; interrupting cancels nothing' })
  parseWait(): boolean {
    return true;
  }

  @Option({
    flags: '--deadline <duration>',
    description: 'stop waiting for replacements after this (default 1h)',
  })
  parseDeadline(value: string): string {
    return duration('--deadline', value);
  }

  @Option({
    flags: '--stream-grace <duration>',
    description: 'how long running streams may take (default 15m)',
  })
  parseStreamGrace(value: string): string {
    return duration('--stream-grace', value);
  }

  @Option({ flags: '--allow-gap', description: 'go on although a model is without a replica for a while' })
  parseAllowGap(): boolean {
    return true;
  }

  @Option({ flags: '--reason <text>', description: 'why, for events and the audit log' })
  parseReason(value: string): string {
    return value;
  }

  @Option({ flags: '-y, --yes', description: 'do not ask' })
  parseYes(): boolean {
    return true;
  }

  override async run([given = '']: string[], options: DrainOptions): Promise<void> {
    this.refuseWatch();
    const { id } = await getNode(this.client, given);
    const { plan: planOnly, wait, yes, ...asked } = options;
    const body = { target: 'drained', ...asked };
    const plan = await this.schedule(id, body, true);
    if (planOnly === true) {
      await this.showOnce({
        data: plan,
        names: plan.moves.map(({ replicaId }) => replicaId),
        lines: (surface) => renderDrainPlan(plan, surface),
      });
      return;
    }
    // The plan is a message, not the result: with -o json standard output holds the result alone.
    if (this.format === 'table' || this.format === 'wide') this.say(renderDrainPlan(plan, this.surface()));
    if (plan.moves.length > 0) await confirm(`drain ${id}?`, yes === true);
    const result = await this.schedule(id, body, false);
    await this.showOnce(resultAnswer(result));
    if (wait === true) await new DrainWait(this.client, this.clock, id, result.scheduling.sequence).run();
  }

  private say(lines: readonly string[]): void {
    for (const line of lines) process.stderr.write(`${line}\n`);
  }
}

function duration(flag: string, text: string): string {
  const parsed = parseDuration(text);
  if (!parsed.ok) throw usageError(`${flag}: ${parsed.problem}`);
  return text;
}
