/** `ctl backup`: the state of a server as one file, checked, and put back in place. */
import { closeSync, openSync, writeSync } from 'node:fs';
import type { BackupSummary } from '../../store/backup.js';
import type { RestoreResult } from '../../store/restore.js';
import { buildVersion } from '../../shared/build-info.js';
import { systemClock } from '../../shared/clock.js';
import { OperatorError } from '../../shared/errors.js';
import { GroupCommand, usageError } from '../llmgw-command.js';
import { Option, SubCommand } from '../nest-commander-lean.js';
import { bytes, plain } from '../render/values.js';
import { loadBackupWorld } from '../worlds.js';
import { confirm } from './confirm.js';
import type { AdminClient } from './admin-client.js';
import { CtlCommandBase } from './ctl-base.js';

interface StateDirOption {
  readonly stateDir?: string;
}

const nowText = (): string => new Date(systemClock.wallMs()).toISOString();

/** What is in a backup, for people. */
function summaryLines(summary: BackupSummary): readonly string[] {
  const { bytes: size, schema, term, madeAt, build, records } = summary;
  const kinds = Object.entries(records).map(([kind, number]) => `${number} ${kind}`);
  return [
    `  made ${madeAt === undefined ? 'at an unknown time' : `at ${plain(madeAt)}`} by llmgw ${plain(build ?? '(unknown)')}`,
    `  ${kinds.length === 0 ? 'no records' : kinds.join(', ')}`,
    `  schema ${schema}, term ${term}, ${bytes(size)}, sha256 ${summary.sha256}`,
  ];
}

@SubCommand({
  name: 'create',
  arguments: '<file>',
  description: 'Copy the state of a running server into a file on this machine.',
})
export class CtlBackupCreateCommand extends CtlCommandBase {
  protected override readonly examples = [
    ['llmgw ctl backup create llmgw.backup', 'from the running server, which goes on working'],
    [
      'llmgw ctl backup create b.db --state-dir /var/lib/llmgw',
      'from a directory here, server stopped or not',
    ],
  ] as const;

  @Option({ flags: '--state-dir <dir>', description: 'read this directory instead of asking a server' })
  parseStateDir(value: string): string {
    return value;
  }

  override async run([file = '']: string[], { stateDir }: StateDirOption): Promise<void> {
    this.refuseWatch();
    const { createBackup, fillBackup } = await loadBackupWorld();
    const stamp = { madeAt: nowText(), build: buildVersion() };
    const summary = await (stateDir === undefined
      ? fillBackup(file, (partial) => fillFromServer(this.client, partial))
      : createBackup(stateDir, file, stamp));
    await this.showOnce({
      data: summary,
      names: [file],
      lines: () => [
        `${plain(file)}: backup made`,
        ...summaryLines(summary),
        `  keep it on another machine; put it back with the server stopped: llmgw ctl backup restore ${plain(file)} --state-dir DIR`,
      ],
    });
  }
}

/** Writes what the server sends; gives the digest that the server says it has. */
async function fillFromServer(client: AdminClient, partial: string): Promise<string | undefined> {
  const handle = openSync(partial, 'r+');
  try {
    return await client.download('backup', (chunk) => {
      for (let at = 0; at < chunk.length;) at += writeSync(handle, chunk, at);
    });
  } finally {
    closeSync(handle);
  }
}

@SubCommand({ name: 'verify', arguments: '<file>', description: 'Check a backup and show what is in it.' })
export class CtlBackupVerifyCommand extends CtlCommandBase {
  override async run([file = '']: string[]): Promise<void> {
    this.refuseWatch();
    const { verifyBackup } = await loadBackupWorld();
    const summary = verifyBackup(file);
    await this.showOnce({
      data: summary,
      names: [file],
      lines: () => [`${plain(file)}: sound, every record matches its checksum`, ...summaryLines(summary)],
    });
  }
}

interface RestoreOptions extends StateDirOption {
  readonly replace?: boolean;
  readonly yes?: boolean;
}

@SubCommand({
  name: 'restore',
  arguments: '<file>',
  description: 'Put a backup in place of the state of a stopped server.',
})
export class CtlBackupRestoreCommand extends CtlCommandBase {
  protected override readonly examples = [
    ['llmgw ctl backup restore llmgw.backup --state-dir /var/lib/llmgw', 'where no sound state is'],
    ['llmgw ctl backup restore llmgw.backup --state-dir .llmgw --replace', 'the present one is moved aside'],
  ] as const;

  @Option({ flags: '--state-dir <dir>', description: "the server's state directory (env LLMGW_STATE_DIR)" })
  parseStateDir(value: string): string {
    return value;
  }

  @Option({ flags: '--replace', description: 'also where a sound state is; it is moved aside, not deleted' })
  parseReplace(): boolean {
    return true;
  }

  @Option({ flags: '-y, --yes', description: 'do not ask' })
  parseYes(): boolean {
    return true;
  }

  override async run([file = '']: string[], options: RestoreOptions): Promise<void> {
    this.refuseWatch();
    const stateDir = options.stateDir ?? process.env['LLMGW_STATE_DIR'] ?? '';
    // Guessing ./.llmgw would one day restore into an empty directory beside the real one, and say that all is well.
    if (stateDir === '') {
      throw usageError(
        '--state-dir: say where the state of the server is',
        '`llmgw config show` has it as stateDir',
      );
    }
    const { restoreBackup, verifyBackup } = await loadBackupWorld();
    const { madeAt } = verifyBackup(file);
    await confirm(
      `put the state of ${madeAt ?? 'an unknown time'} into ${stateDir}? what was decided since is forgotten`,
      options.yes === true,
    );
    const result = refusedAsOperator(() =>
      restoreBackup(file, stateDir, { replace: options.replace === true, nowText: nowText() }),
    );
    await this.showOnce({ data: result, names: [file], lines: () => restoreLines(file, result) });
  }
}

function restoreLines(file: string, result: RestoreResult): readonly string[] {
  const { stateDir, movedAside, raisedTerm } = result;
  return [
    `${plain(stateDir)}: restored from ${plain(file)}`,
    ...summaryLines(result),
    ...(movedAside === undefined ? [] : [`  what was there before is in ${plain(movedAside)}`]),
    `  commands of earlier servers will be refused: the next term is above ${raisedTerm}`,
    `  start the server: running engines are taken over or stopped as the agents report them, none is started twice`,
  ];
}

/** What the store refuses, as errors of a command. */
function refusedAsOperator<T>(work: () => T): T {
  try {
    return work();
  } catch (error) {
    const code = (error as { readonly code?: unknown }).code;
    if (!(error instanceof Error) || error.name !== 'StoreError') throw error;
    throw new OperatorError(code === 'locked' ? 'conflict' : 'refused', error.message, {
      cause: error.cause,
    });
  }
}

@SubCommand({
  name: 'backup',
  description: 'Make, check and restore backups of the state.',
  subCommands: [CtlBackupCreateCommand, CtlBackupVerifyCommand, CtlBackupRestoreCommand],
})
export class CtlBackupCommand extends GroupCommand {}
