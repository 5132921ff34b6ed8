/** `ctl tokens`: tokens of operators and agents. */
import type { ListView } from '../../admin-api/views/answers.js';
import type { CreatedTokenView, RevokedTokenView, TokenView } from '../../admin-api/views/credentials.js';
import { didYouMean } from '../../shared/nearest.js';
import { GroupCommand, usageError } from '../llmgw-command.js';
import { Option, SubCommand } from '../nest-commander-lean.js';
import { TOKEN_COLUMNS } from '../render/credential-columns.js';
import { plain } from '../render/values.js';
import { confirm } from './confirm.js';
import { byIdOrUnique, checkExpiry, createdAnswer, nameGiven, notRevoked, sayNotes } from './credentials.js';
import { CtlCommandBase, segment } from './ctl-base.js';
import { listAnswer } from './list.commands.js';

const KINDS = ['admin', 'join'];
const ROLES = ['viewer', 'operator', 'admin'];

function oneOf(flag: string, value: string, known: readonly string[]): string {
  if (known.includes(value)) return value;
  throw usageError(`${flag}: expected ${known.join(', ')}, got '${value}'${didYouMean(value, known)}`);
}

@SubCommand({ name: 'create', description: 'Make a token; its secret is printed once.' })
export class CtlTokensCreateCommand extends CtlCommandBase {
  protected override readonly examples = [
    ['llmgw ctl tokens create --name alice --role admin', 'the first one; from then on everybody needs one'],
    ['llmgw ctl tokens create --name prometheus --role viewer', 'to look and to scrape'],
    ['llmgw ctl tokens create --name rack-1 --kind join --expires 24h', 'for agents that join'],
  ] as const;

  @Option({ flags: '--name <name>', description: 'who or what uses it; stands in the audit log' })
  parseName(value: string): string {
    return value;
  }

  @Option({ flags: '--kind <kind>', description: 'admin: for the admin API (default); join: for agents' })
  parseKind(value: string): string {
    return oneOf('--kind', value, KINDS);
  }

  @Option({ flags: '--role <role>', description: 'viewer (default), operator or admin' })
  parseRole(value: string): string {
    return oneOf('--role', value, ROLES);
  }

  @Option({ flags: '--expires <when>', description: 'after 90d, on 2027-01-31, or at 2027-01-31T12:00:00Z' })
  parseExpires(value: string): string {
    return checkExpiry(value);
  }

  override async run(_words: string[], options: Readonly<Record<string, string>>): Promise<void> {
    const name = nameGiven(options['name']);
    this.refuseNames();
    const token = await this.client.post<CreatedTokenView>('tokens', { ...options, name });
    await this.showOnce(createdAnswer(token, 'token'));
  }
}

@SubCommand({ name: 'list', description: 'List the tokens; never their secrets.' })
export class CtlTokensListCommand extends CtlCommandBase {
  @Option({ flags: '-a, --all', description: 'revoked ones too' })
  parseAll(): boolean {
    return true;
  }

  override async run(_words: string[], options: { all?: boolean }): Promise<void> {
    await this.show(async () => {
      const { items } = await this.client.get<ListView<TokenView>>('tokens');
      const tokens = items.filter(notRevoked(options.all));
      const empty = 'no tokens: whoever reaches the admin listener is its admin';
      return listAnswer(tokens, TOKEN_COLUMNS, ({ id }) => id, empty);
    });
  }
}

@SubCommand({ name: 'revoke', arguments: '<id>', description: 'End a token.' })
export class CtlTokensRevokeCommand extends CtlCommandBase {
  @Option({ flags: '-y, --yes', description: 'do not ask' })
  parseYes(): boolean {
    return true;
  }

  override async run([given = '']: string[], options: { yes?: boolean }): Promise<void> {
    this.refuseWatch();
    const { items } = await this.client.get<ListView<TokenView>>('tokens');
    const token = byIdOrUnique('token', given, items);
    if (token.state !== 'revoked') {
      await confirm(`revoke ${token.id} (${plain(token.name)})?`, options.yes === true);
    }
    const revoked = await this.client.delete<RevokedTokenView>(`tokens/${segment(token.id)}`);
    sayNotes(revoked.notes);
    await this.showOnce({
      data: revoked,
      names: [revoked.id],
      lines: () => [`${revoked.id} (${plain(revoked.name)}): revoked`],
    });
  }
}

@SubCommand({
  name: 'tokens',
  description: 'Make, list and revoke tokens of operators and agents.',
  subCommands: [CtlTokensCreateCommand, CtlTokensListCommand, CtlTokensRevokeCommand],
})
export class CtlTokensCommand extends GroupCommand {}
