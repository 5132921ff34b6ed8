import type { LogView } from '../../admin-api/views/status.js';
import { usageError } from '../llmgw-command.js';
import { Option, SubCommand } from '../nest-commander-lean.js';
import { plainLines } from '../render/values.js';
import { CtlCommandBase, segment } from './ctl-base.js';

interface LogsOptions {
  readonly follow?: boolean;
  readonly tail?: string;
  readonly previous?: boolean;
}

@SubCommand({ name: 'logs', arguments: '<shard-or-replica>', description: 'Print what an engine wrote.' })
export class CtlLogsCommand extends CtlCommandBase {
  protected override readonly examples = [
    ['llmgw ctl logs qwen-x7k2p -f', 'the end of the log, and on'],
    ['llmgw ctl logs qwen-x7k2p --previous', 'what the run before the last start wrote, wherever it was'],
  ] as const;

  @Option({ flags: '-f, --follow', description: 'go on until interrupted' })
  parseFollow(): boolean {
    return true;
  }

  @Option({ flags: '--tail <lines>', description: 'lines from the end (default 200)' })
  parseTail(value: string): string {
    if (!/^\d{1,6}$/.test(value)) throw usageError(`--tail: expected a number of lines, got '${value}'`);
    return value;
  }

  @Option({ flags: '--previous', description: 'of the run before the present one' })
  parsePrevious(): boolean {
    return true;
  }

  override async run([id = '']: string[], { follow, tail, previous }: LogsOptions): Promise<void> {
    this.refuseWatch();
    const path = `shards/${segment(id)}/logs`;
    if (follow !== true) {
      const log = await this.client.get<LogView>(path, { tail, previous });
      const text = this.format === 'json' ? JSON.stringify(log) : plainLines(log.text);
      if (previous === true) process.stderr.write(`the run before, on ${log.nodeId}:\n`);
      process.stdout.write(text === '' || text.endsWith('\n') ? text : `${text}\n`);
      return;
    }
    for await (const chunk of this.client.follow(path, { tail, previous, follow: true })) {
      process.stdout.write(plainLines(chunk));
    }
  }
}
