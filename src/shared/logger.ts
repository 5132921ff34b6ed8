import { pino, type Logger as PinoLogger } from 'pino';

/** Structured log: fields first, then a message, as pino has it. */
export type Logger = PinoLogger;

export interface LogSettings {
  readonly level: 'debug' | 'info' | 'warn' | 'error';
  readonly format: 'json' | 'pretty';
}

/** Field names whose values never reach a log, wherever they stand in a logged object. */
const SECRET_FIELDS = ['authorization', 'cookie', 'apiKey', 'token', 'secret', 'password', 'joinToken'];
const REDACTED_PATHS = SECRET_FIELDS.flatMap((field) => [field, `*.${field}`, `*.*.${field}`]);

/** A line for a person at a terminal: time, level, message, then the fields that differ per line. */
function prettyLine(line: string): string {
  const { level, time, msg, component, ...fields } = JSON.parse(line) as Record<string, unknown>;
  const clock = typeof time === 'string' ? time.slice(11, 19) : '';
  const rest = Object.entries(fields)
    .map(([key, value]) => `${key}=${typeof value === 'string' ? value : JSON.stringify(value)}`)
    .join(' ');
  const from = typeof component === 'string' ? `${component}: ` : '';
  return `${clock} ${String(level).padEnd(5)} ${from}${String(msg)}${rest === '' ? '' : `  ${rest}`}\n`;
}

/**
 * The process's log, written to standard error so that standard output stays free for data.
 * Writes are synchronous: the last line before a crash is the one that is needed.
 */
export function createLogger(settings: LogSettings, write?: (line: string) => void): Logger {
  const sink = write ?? ((line: string) => process.stderr.write(line));
  return pino(
    {
      level: settings.level,
      base: null,
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      redact: { paths: REDACTED_PATHS, censor: '[redacted]' },
      onChild: rememberChild,
    },
    lineStream(settings.format, sink),
  );
}

/** pino's children copy the level when they are made, so they must be known to be told of another. */
const childrenOf = new WeakMap<Logger, WeakRef<Logger>[]>();

function rememberChild(this: Logger, child: Logger): void {
  // Children of things that come and go are forgotten with them.
  const living = (childrenOf.get(this) ?? []).filter((one) => one.deref() !== undefined);
  childrenOf.set(this, [...living, new WeakRef(child)]);
}

/** Sets the least severe level that the logger and everything made from it writes. */
export function setLogLevel(logger: Logger, level: LogSettings['level']): void {
  logger.level = level;
  for (const child of childrenOf.get(logger) ?? []) {
    const living = child.deref();
    if (living !== undefined) setLogLevel(living, level);
  }
}

/** Where finished lines go; `writeMany` takes lines that are JSON already. */
interface LineStream {
  write(line: string): void;
  writeMany(lines: string): void;
}

function lineStream(format: LogSettings['format'], sink: (line: string) => void): LineStream {
  const shaped = format === 'pretty' ? prettyLine : (line: string) => line;
  return {
    write: (line) => sink(shaped(line)),
    writeMany: (lines) => {
      if (format === 'json') return sink(lines);
      for (const line of splitLines(lines)) sink(prettyLine(line));
    },
  };
}

/**
 * Writes finished JSON lines (each with its line end, in one string) to where `logger` writes, all in one go. For logs with a line per
 * request, whose cost is the write; the caller sees to the level and that no secret is in them.
 */
export function writeLines(logger: Logger, lines: string): void {
  const stream = (logger as unknown as Record<symbol, Partial<LineStream> | undefined>)[
    pino.symbols.streamSym
  ];
  if (stream?.writeMany !== undefined) stream.writeMany(lines);
  else for (const line of splitLines(lines)) stream?.write?.(`${line}\n`);
}

const splitLines = (lines: string): string[] => lines.split('\n').filter((line) => line !== '');

/** Token under which the process's logger is injected. */
export const LOGGER = Symbol('Logger');
