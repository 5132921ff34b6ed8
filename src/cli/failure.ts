/** How a failed command ends: what is written to standard error, and the exit code. */
import {
  ADMIN_ERRORS,
  ConfigError,
  EXIT,
  OperatorError,
  errorChain,
  formatProblem,
  type ExitCode,
} from '../shared/errors.js';

export interface FailureStyle {
  /** One JSON object instead of lines. */
  readonly json: boolean;
  /** With stack traces. */
  readonly debug: boolean;
}

/** Commander's own errors, known by their shape: the class comes from whichever copy nest-commander uses. */
interface CommanderError extends Error {
  readonly code: string;
  readonly exitCode: number;
}

const isCommanderError = (error: unknown): error is CommanderError =>
  error instanceof Error &&
  'exitCode' in error &&
  'code' in error &&
  String(error.code).startsWith('commander.');

/** An end without a message: the command has said all that is to say. */
export class QuietExit extends Error {
  override readonly name = 'QuietExit';
  constructor(readonly exitCode: ExitCode) {
    super('');
  }
}

export function exitCodeOf(error: unknown): ExitCode {
  if (error instanceof QuietExit) return error.exitCode;
  if (error instanceof ConfigError) return EXIT.usage;
  if (error instanceof OperatorError) return ADMIN_ERRORS[error.code].exit;
  if (isCommanderError(error)) return error.exitCode === 0 ? EXIT.ok : EXIT.usage;
  return EXIT.failed;
}

/** The style the command line asks for, read without parsing it: it must work when parsing is what failed. */
export function readFailureStyle(
  argv: readonly string[],
  env: Readonly<Record<string, string | undefined>>,
): FailureStyle {
  const format = argv.flatMap((arg, index) => {
    if (arg === '--output') return [argv[index + 1]];
    if (arg.startsWith('--output=')) return [arg.slice(9)];
    // Short flags may stand together: `-wojson`, `-wo json`.
    const [, joined] = /^-[afwy]*o(.*)$/.exec(arg) ?? [];
    return joined === undefined ? [] : [joined === '' ? argv[index + 1] : joined];
  });
  return {
    json: format.at(-1) === 'json',
    debug: argv.includes('--debug') || env['LLMGW_DEBUG'] === '1',
  };
}

/** What goes to standard error, with its final newline; empty when nothing is to be said. */
export function failureText(error: unknown, style: FailureStyle): string {
  if (error instanceof QuietExit) return '';
  // Help was asked for, or shown because nothing else was: the text is the answer.
  if (isCommanderError(error) && (error.exitCode === 0 || error.code === 'commander.help')) return '';
  const failure = describe(error);
  if (style.json) {
    const stack = style.debug && error instanceof Error ? { stack: error.stack } : {};
    return `${JSON.stringify({ error: { ...failure, ...stack } })}\n`;
  }
  const lines = [failure.message];
  // Of a ConfigError the problems are the message.
  if (error instanceof OperatorError)
    lines.push(...(failure.problems ?? []).map((one) => `  ${formatProblem(one)}`));
  if (failure.hint !== undefined) lines.push(failure.hint);
  if (style.debug && error instanceof Error && error.stack !== undefined) lines.push(error.stack);
  return `${lines.join('\n')}\n`;
}

interface Failure {
  readonly code: string;
  readonly message: string;
  readonly field?: string;
  readonly hint?: string;
  readonly problems?: ConfigError['problems'];
}

function describe(error: unknown): Failure {
  if (error instanceof ConfigError) {
    return { code: 'invalid_configuration', message: error.message, problems: error.problems };
  }
  if (error instanceof OperatorError) {
    const { field, hint, problems } = error.details;
    return {
      code: error.code,
      message: errorChain(error).join(': '),
      ...(problems === undefined ? {} : { problems }),
      ...(field === undefined ? {} : { field }),
      ...(hint === undefined ? {} : { hint }),
    };
  }
  if (isCommanderError(error)) return { code: 'usage', ...splitHint(error.message) };
  return { code: 'failed', message: errorChain(error).join(': ') };
}

/** Commander puts its suggestion on a second line and "error:" before the first. */
function splitHint(message: string): { message: string; hint?: string } {
  const [first = '', ...rest] = message.replace(/^error: /, '').split('\n');
  const hint = rest.join(' ').trim();
  return hint === '' ? { message: first } : { message: first, hint };
}
