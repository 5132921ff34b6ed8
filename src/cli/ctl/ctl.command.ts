import { parseDuration } from '../../config/units.js';
import { GroupCommand, usageError } from '../llmgw-command.js';
import { Command, Option } from '../nest-commander-lean.js';
import {
  CtlModelCommand,
  CtlNodeCommand,
  CtlReplicaCommand,
  CtlStatusCommand,
  CtlVersionCommand,
} from './detail.commands.js';
import { CtlBackupCommand } from './backup.commands.js';
import { CtlCompletionCommand } from './completion.command.js';
import { CtlTopCommand } from './top.command.js';
import { CtlEventsCommand } from './events.command.js';
import { CtlKeysCommand } from './keys.commands.js';
import { CtlTokensCommand } from './tokens.commands.js';
import { CtlConfigCommand, CtlPlanCommand } from './config.commands.js';
import { kubectlEquivalent } from './kubectl-words.js';
import { CtlLogsCommand } from './logs.command.js';
import { CtlRestartCommand, CtlScaleCommand } from './model-change.commands.js';
import { CtlCordonCommand, CtlDrainCommand, CtlUncordonCommand } from './schedule.commands.js';
import { CtlExplainPlacementCommand, CtlExplainRequestCommand } from './explain.commands.js';
import {
  CtlEndpointsCommand,
  CtlGpusCommand,
  CtlModelsCommand,
  CtlNodesCommand,
  CtlReplicasCommand,
} from './list.commands.js';

/** The group and the options that all of its commands take, before or after their own word. */
@Command({
  name: 'ctl',
  description: 'Look at and change a running server.',
  subCommands: [
    CtlStatusCommand,
    CtlNodesCommand,
    CtlNodeCommand,
    CtlGpusCommand,
    CtlModelsCommand,
    CtlModelCommand,
    CtlReplicasCommand,
    CtlReplicaCommand,
    CtlEndpointsCommand,
    CtlEventsCommand,
    CtlTopCommand,
    CtlExplainPlacementCommand,
    CtlExplainRequestCommand,
    CtlLogsCommand,
    CtlCordonCommand,
    CtlUncordonCommand,
    CtlDrainCommand,
    CtlScaleCommand,
    CtlRestartCommand,
    CtlBackupCommand,
    CtlConfigCommand,
    CtlKeysCommand,
    CtlTokensCommand,
    CtlPlanCommand,
    CtlVersionCommand,
    CtlCompletionCommand,
  ],
})
export class CtlCommand extends GroupCommand {
  protected override readonly examples = [
    ['llmgw ctl status', 'how the whole is doing'],
    ['llmgw ctl replicas --model qwen -o wide', 'the copies of one model'],
    ['llmgw ctl explain-placement qwen', 'why a replica is where it is, or nowhere'],
  ] as const;

  protected override equivalent(words: readonly string[]): string | undefined {
    return kubectlEquivalent(words);
  }

  @Option({
    flags: '--server <url>',
    description: 'admin API (default http://127.0.0.1:8081, env LLMGW_ADMIN_URL)',
  })
  parseServer(value: string): string {
    return value;
  }

  @Option({ flags: '--token-file <file>', description: 'file with the token (env LLMGW_TOKEN_FILE)' })
  parseTokenFile(value: string): string {
    return value;
  }

  @Option({ flags: '-o, --output <format>', description: 'table, wide, json, yaml or name' })
  parseOutput(value: string): string {
    return value;
  }

  @Option({ flags: '-w, --watch', description: 'look again every two seconds and show what changed' })
  parseWatch(): boolean {
    return true;
  }

  @Option({ flags: '--timeout <duration>', description: 'longest wait for an answer (default 30s)' })
  parseTimeout(value: string): number {
    const parsed = parseDuration(value);
    if (parsed.ok && parsed.value > 0) return parsed.value;
    throw usageError(`--timeout: ${parsed.ok ? 'expected more than nothing' : parsed.problem}`);
  }

  @Option({ flags: '--no-color', description: 'never colour' })
  parseColor(): boolean {
    return false;
  }
}
