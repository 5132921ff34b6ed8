import type { LogView } from '../../admin-api/views/status.js';
import type { Timer } from '../../shared/clock.js';
import { OperatorError } from '../../shared/errors.js';
import { usageError } from '../llmgw-command.js';
import { Option, SubCommand } from '../nest-commander-lean.js';
import { plainLines } from '../render/values.js';
import { CtlCommandBase, segment } from './ctl-base.js';
import { LogJoin, RESUME_LINES } from './log-join.js';

/** Pause before a log that broke off is asked for again. */
const AGAIN_MS = 1_000;
/** How long the place where it broke off is searched in what comes. */
const SEARCH_MS = 2_000;
/** The server, or the agent of the node, is away. */
const AWAY: ReadonlySet<string> = new Set(['unreachable', 'conflict']);

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

  @Option({ flags: '-f, --follow', description: 'go on until the engine ends' })
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
    if (follow === true && this.format !== 'table' && this.format !== 'wide')
      throw usageError(`-o ${this.format} has no meaning with --follow: what is followed is the text itself`);
    const path = `shards/${segment(id)}/logs`;
    if (follow !== true) {
      const log = await this.client.get<LogView>(path, { tail, previous });
      if (previous === true) process.stderr.write(`the run before, on ${log.nodeId}:\n`);
      const text = plainLines(log.text).replace(/\n$/, '');
      await this.showOnce({
        data: log,
        names: [log.shardId],
        lines: () => (text === '' ? [] : text.split('\n')),
      });
      return;
    }
    await this.follow(path, { tail, previous });
  }

  /** Until the engine ends. An agent or a server that is away for a while is no end of the log. */
  private async follow(
    path: string,
    query: { tail?: string | undefined; previous?: boolean | undefined },
  ): Promise<void> {
    const join = new LogJoin();
    let lines = query.tail;
    let told = false;
    for (let began = false; ;) {
      let search: Timer | undefined;
      try {
        for await (const chunk of this.client.follow(path, { ...query, tail: lines, follow: true })) {
          began = true;
          told = false;
          process.stdout.write(plainLines(join.take(chunk)));
          if (join.isSearching)
            search ??= this.clock.setTimer(SEARCH_MS, () => process.stdout.write(plainLines(join.giveUp())));
        }
        return;
      } catch (error) {
        const away = error instanceof OperatorError && AWAY.has(error.code);
        if (!away || !began) throw error;
        if (!told) process.stderr.write(`${error.message}; trying again\n`);
      } finally {
        search?.cancel();
        if (join.isSearching) process.stdout.write(plainLines(join.giveUp()));
      }
      told = true;
      lines = String(RESUME_LINES);
      join.brokeOff();
      await new Promise<void>((resolve) => this.clock.setTimer(AGAIN_MS, resolve));
    }
  }
}
