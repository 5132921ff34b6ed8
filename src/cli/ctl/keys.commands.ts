/** `ctl keys`: API keys of clients. */
import type { ListView } from '../../admin-api/views/answers.js';
import type { CreatedKeyView, KeyView } from '../../admin-api/views/credentials.js';
import { GroupCommand, collect, usageError } from '../llmgw-command.js';
import { Option, SubCommand } from '../nest-commander-lean.js';
import { KEY_COLUMNS } from '../render/credential-columns.js';
import { plain } from '../render/values.js';
import { confirm } from './confirm.js';
import {
  byIdOrUnique,
  checkExpiry,
  createdAnswer,
  notRevoked,
  nameGiven,
  wholeNumber,
} from './credentials.js';
import { CtlCommandBase, segment } from './ctl-base.js';
import { listAnswer } from './list.commands.js';

interface CreateKeyOptions {
  readonly name?: string;
  readonly models?: readonly string[];
  readonly rpm?: number;
  readonly tpm?: number;
  readonly maxConcurrent?: number;
  readonly priority?: number;
  readonly expires?: string;
}

@SubCommand({ name: 'create', description: 'Make an API key; its secret is printed once.' })
export class CtlKeysCreateCommand extends CtlCommandBase {
  protected override readonly examples = [
    ['llmgw ctl keys create --name ci --rpm 60 --tpm 100000', 'with limits per minute'],
    ["llmgw ctl keys create --name bob --models 'qwen*' --expires 90d", 'some models, for a while'],
    ['key=$(llmgw ctl keys create --name ci)', 'standard output has the secret alone'],
  ] as const;

  @Option({ flags: '--name <name>', description: 'who or what uses it' })
  parseName(value: string): string {
    return value;
  }

  @Option({
    flags: '--models <names>',
    description: 'only these models: a,b or repeated; * stands for any text',
  })
  parseModels(value: string, previous?: readonly string[]): string[] {
    const names = value.split(',').map((name) => name.trim());
    if (names.includes('')) throw usageError(`--models: expected names of models, got '${value}'`);
    return names.reduce<string[]>((all, name) => collect(name, all), [...(previous ?? [])]);
  }

  @Option({ flags: '--rpm <n>', description: 'requests per minute' })
  parseRpm(value: string): number {
    return wholeNumber('--rpm', value, 1);
  }

  @Option({ flags: '--tpm <n>', description: 'prompt and output tokens per minute' })
  parseTpm(value: string): number {
    return wholeNumber('--tpm', value, 1);
  }

  @Option({ flags: '--max-concurrent <n>', description: 'requests at once' })
  parseMaxConcurrent(value: string): number {
    return wholeNumber('--max-concurrent', value, 1);
  }

  @Option({
    flags: '--priority <n>',
    description: 'in the queue, 0 to 1000; higher goes first (default 100)',
  })
  parsePriority(value: string): number {
    return wholeNumber('--priority', value, 0);
  }

  @Option({ flags: '--expires <when>', description: 'after 90d, on 2027-01-31, or at 2027-01-31T12:00:00Z' })
  parseExpires(value: string): string {
    return checkExpiry(value);
  }

  override async run(_words: string[], options: CreateKeyOptions): Promise<void> {
    const { rpm, tpm, ...rest } = options;
    const name = nameGiven(options.name);
    this.refuseNames();
    const key = await this.client.post<CreatedKeyView>('keys', {
      ...rest,
      name,
      requestsPerMinute: rpm,
      tokensPerMinute: tpm,
    });
    await this.showOnce(createdAnswer(key, 'key'));
  }
}

@SubCommand({ name: 'list', description: 'List the API keys; never their secrets.' })
export class CtlKeysListCommand extends CtlCommandBase {
  @Option({ flags: '-a, --all', description: 'revoked ones too' })
  parseAll(): boolean {
    return true;
  }

  override async run(_words: string[], options: { all?: boolean }): Promise<void> {
    await this.show(async () => {
      const { items } = await this.client.get<ListView<KeyView>>('keys');
      const keys = items.filter(notRevoked(options.all));
      return listAnswer(keys, KEY_COLUMNS, ({ id }) => id, 'no keys: llmgw ctl keys create --name NAME');
    });
  }
}

@SubCommand({ name: 'revoke', arguments: '<id>', description: 'End an API key; requests that run go on.' })
export class CtlKeysRevokeCommand extends CtlCommandBase {
  @Option({ flags: '-y, --yes', description: 'do not ask' })
  parseYes(): boolean {
    return true;
  }

  override async run([given = '']: string[], options: { yes?: boolean }): Promise<void> {
    this.refuseWatch();
    const { items } = await this.client.get<ListView<KeyView>>('keys');
    const key = byIdOrUnique('key', given, items);
    if (key.state === 'revoked') {
      process.stderr.write(
        `${key.id} (${plain(key.name)}) was revoked before, by ${plain(key.revokedBy ?? '')}\n`,
      );
    } else {
      await confirm(`revoke ${key.id} (${plain(key.name)})?`, options.yes === true);
    }
    const revoked = await this.client.delete<KeyView>(`keys/${segment(key.id)}`);
    await this.showOnce({
      data: revoked,
      names: [revoked.id],
      lines: () => [`${revoked.id} (${plain(revoked.name)}): revoked`],
    });
  }
}

@SubCommand({
  name: 'keys',
  description: 'Make, list and revoke API keys of clients.',
  subCommands: [CtlKeysCreateCommand, CtlKeysListCommand, CtlKeysRevokeCommand],
})
export class CtlKeysCommand extends GroupCommand {}
