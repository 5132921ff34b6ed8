/** What every `ctl` command shares: the options that reach the server, the output format, and watching. */
import { systemClock, type Clock } from '../../shared/clock.js';
import { OperatorError } from '../../shared/errors.js';
import { LlmgwCommand, fullName, usageError } from '../llmgw-command.js';
import { wantsColour, type Surface } from '../render/style.js';
import { didYouMean } from '../../shared/nearest.js';
import { AdminClient, adminTarget } from './admin-client.js';

export const OUTPUT_FORMATS = ['table', 'wide', 'json', 'yaml', 'name'] as const;
export type OutputFormat = (typeof OUTPUT_FORMATS)[number];

/** Pause between two looks of `--watch`. */
const WATCH_EVERY_MS = 2_000;

interface GlobalOptions {
  readonly server?: string;
  readonly tokenFile?: string;
  readonly output?: string;
  readonly watch?: boolean;
  readonly timeout?: number;
  readonly color?: boolean;
}

/** One answer in every form it can be asked for. */
export interface Answer {
  /** The object of the admin API, for `json` and `yaml`. */
  readonly data: unknown;
  /** For `name`: one id a line. */
  readonly names: readonly string[];
  /** For people; `wide` adds columns. */
  readonly lines: (surface: Surface, wide: boolean) => readonly string[];
}

export abstract class CtlCommandBase extends LlmgwCommand {
  /** Watches without being asked where somebody looks on. */
  protected readonly watchesOnTerminal: boolean = false;
  /** Tests bring their own. */
  static clock: Clock = systemClock;

  protected get clock(): Clock {
    return CtlCommandBase.clock;
  }

  protected get client(): AdminClient {
    const { server, tokenFile, timeout } = this.globals();
    const { env } = process;
    return new AdminClient(
      adminTarget(server ?? nonEmpty(env['LLMGW_ADMIN_URL']), tokenFile ?? nonEmpty(env['LLMGW_TOKEN_FILE'])),
      timeout,
    );
  }

  protected get format(): OutputFormat {
    const { output = 'table' } = this.globals();
    const known: readonly string[] = OUTPUT_FORMATS;
    if (known.includes(output)) return output as OutputFormat;
    throw usageError(
      `unknown output format '${output}'${didYouMean(output, known)}`,
      `known are: ${known.join(', ')}`,
    );
  }

  /** Prints the answer, and with `--watch` every later one that differs, until interrupted. */
  protected async show(ask: () => Promise<Answer>): Promise<void> {
    const format = this.format;
    const watching =
      this.globals().watch === true || (this.watchesOnTerminal && process.stdout.isTTY === true);
    let last = await this.print(await ask(), format, '', watching);
    let complained = false;
    while (watching) {
      await new Promise<void>((resolve) => this.clock.setTimer(WATCH_EVERY_MS, resolve));
      try {
        last = await this.print(await ask(), format, last, true);
        complained = false;
      } catch (error) {
        // A server that is being restarted comes back; watching it do so is what watching is for.
        if (!(error instanceof OperatorError) || error.code !== 'unreachable') throw error;
        if (!complained) process.stderr.write(`${error.message}; trying again\n`);
        complained = true;
      }
    }
  }

  /** Prints once; for commands that change something or stream, where watching makes no sense. */
  protected async showOnce(answer: Answer): Promise<void> {
    this.refuseWatch();
    await this.print(answer, this.format, '', false);
  }

  /** Prints one piece of what goes on and on, behind the ones before. */
  protected async showNext(answer: Answer): Promise<void> {
    process.stdout.write(await this.text(answer, this.format, true));
  }

  /** For commands whose answer has more than a name, which would be lost. */
  protected refuseNames(): void {
    this.refuseWatch();
    if (this.format !== 'name') return;
    throw usageError(
      '-o name would lose the secret, which is shown only once',
      'leave it out, or use -o json',
    );
  }

  protected refuseWatch(): void {
    if (this.globals().watch === true)
      throw usageError(`--watch has no meaning for '${fullName(this.command)}'`);
  }

  protected surface(): Surface {
    const { stdout, env } = process;
    return {
      colour: wantsColour(stdout, env, this.globals().color === false),
      ...(stdout.isTTY && stdout.columns > 0 ? { columns: stdout.columns } : {}),
      nowMs: this.clock.wallMs(),
    };
  }

  /** The text as printed, so that an unchanged one is not printed again while watching. */
  private async print(
    answer: Answer,
    format: OutputFormat,
    last: string,
    watching: boolean,
  ): Promise<string> {
    const text = await this.text(answer, format, watching);
    if (text === last) return last;
    const human = format === 'table' || format === 'wide';
    // A terminal is redrawn in place; anything else gets the new state behind the old one.
    if (watching && human && process.stdout.isTTY) process.stdout.write('\u001b[H\u001b[J');
    process.stdout.write(text);
    return text;
  }

  private async text(answer: Answer, format: OutputFormat, watching: boolean): Promise<string> {
    switch (format) {
      case 'json':
        // While watching, one object a line: a reader can split without parsing.
        return `${JSON.stringify(answer.data, null, watching ? undefined : 2)}\n`;
      case 'yaml': {
        const { stringify } = await import('yaml');
        return `${watching ? '---\n' : ''}${stringify(answer.data, { lineWidth: 0 })}`;
      }
      case 'name':
        return lines(answer.names);
      case 'table':
      case 'wide':
        return lines(answer.lines(this.surface(), format === 'wide'));
    }
  }

  /** Options given anywhere on the command line, before or after the command's own word. */
  private globals(): GlobalOptions {
    return this.command.optsWithGlobals<GlobalOptions>();
  }
}

const lines = (texts: readonly string[]): string => texts.map((text) => `${text}\n`).join('');

const nonEmpty = (text: string | undefined): string | undefined => (text === '' ? undefined : text);

/** Finds the one object meant by an id or by the beginning of one. */
export async function byIdOrPrefix<T>(
  noun: string,
  given: string,
  ids: () => Promise<readonly string[]>,
  get: (id: string) => Promise<T>,
): Promise<T> {
  try {
    return await get(given);
  } catch (error) {
    if (!(error instanceof OperatorError) || error.code !== 'not_found') throw error;
    const known = await ids();
    const matches = known.filter((id) => id.startsWith(given));
    if (matches.length === 1 && matches[0] !== undefined) return get(matches[0]);
    if (matches.length === 0) throw unknownObject(noun, given, known);
    throw new OperatorError(
      'conflict',
      `${noun} '${given}' is not unique: ${matches.slice(0, 8).join(', ')}`,
      {
        hint: 'give more of the id',
      },
    );
  }
}

export function unknownObject(noun: string, given: string, known: readonly string[]): OperatorError {
  const few = known.slice(0, 8).join(', ') + (known.length > 8 ? ', ...' : '');
  return new OperatorError('not_found', `no ${noun} '${given}'${didYouMean(given, known)}`, {
    hint: known.length === 0 ? `there are no ${noun}s` : `known are: ${few}`,
  });
}

/** A path segment that may hold any character of an id or model name. */
export const segment = encodeURIComponent;
