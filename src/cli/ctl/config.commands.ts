/** `ctl config`: what a running server is configured to do. */
import { readFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import type { ConfigPlanView, ReloadResultView } from '../../admin-api/views/configuration.js';
import { EXIT, OperatorError } from '../../shared/errors.js';
import { QuietExit } from '../failure.js';
import { GroupCommand, usageError } from '../llmgw-command.js';
import { Option, SubCommand } from '../nest-commander-lean.js';
import { renderPlan, renderReload } from '../render/config-changes.js';
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

@SubCommand({
  name: 'plan',
  description:
    'Show what a configuration file would change, without doing it; ends with 1 when it would change anything.',
})
export class CtlPlanCommand extends CtlCommandBase {
  protected override readonly examples = [
    ['llmgw ctl plan -f llmgw.yaml', 'which replicas would be replaced, in what order, for how long'],
    ['llmgw ctl plan -f - < new.yaml', 'the same, read from standard input'],
  ] as const;

  @Option({
    flags: '-f, --file <file>',
    description: 'configuration file of the server; - is standard input',
  })
  parseFile(value: string): string {
    return value;
  }

  override async run(_words: string[], { file }: { file?: string }): Promise<void> {
    this.refuseWatch();
    if (file === undefined) throw usageError('which file?', 'llmgw ctl plan -f llmgw.yaml');
    const body =
      file === '-' ? { text: await readInput() } : { text: await readGiven(file), name: resolve(file) };
    const plan = await this.client.post<ConfigPlanView>('config/plan', body);
    await this.showOnce({
      data: plan,
      names: plan.models.map(({ model }) => model),
      lines: (surface) => renderPlan(plan, surface),
    });
    if (plan.changed) throw new QuietExit(EXIT.failed);
  }
}

async function readGiven(file: string): Promise<string> {
  try {
    return asText(file, await readFile(file));
  } catch (error) {
    if (error instanceof OperatorError) throw error;
    throw usageError(`${file} cannot be read: ${(error as Error).message}`);
  }
}

/** As strict as the server is with its own file: a plan must not be kinder than the reload. */
function asText(what: string, bytes: Uint8Array): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    throw usageError(`${what} is not UTF-8 text`);
  }
}

async function readInput(): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of process.stdin as AsyncIterable<Buffer>) chunks.push(chunk);
  return asText('standard input', Buffer.concat(chunks));
}
