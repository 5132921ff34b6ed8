import { inspect } from 'node:util';
import { systemClock } from '../../shared/clock.js';
import { embeddedAvailable } from './availability.js';
import { EmbeddedEngine } from './embedded-engine.js';
import { type EmbeddedCommandLine, EmbeddedUsageError, parseEmbeddedCommandLine } from './options.js';

/** Exit codes beside 0: what a supervisor can tell apart without reading the log. */
const EXIT_FAILED = 1;
const EXIT_USAGE = 2;
/** As a shell says that a command is not there: nothing about the model can help. */
const EXIT_NO_BINARY = 127;

const say = (line: string) => process.stderr.write(`embedded-engine: ${line}\n`);

function readCommandLine(): EmbeddedCommandLine {
  try {
    return parseEmbeddedCommandLine(process.argv.slice(2));
  } catch (error) {
    if (!(error instanceof EmbeddedUsageError)) throw error;
    say(`error: invalid argument: ${error.message}`);
    process.exit(EXIT_USAGE);
  }
}

async function run({ engine: options, host, port, stopGraceMs }: EmbeddedCommandLine): Promise<void> {
  const startMs = systemClock.monotonicMs();
  const engine = new EmbeddedEngine(options, { log: say });
  const boundPort = await engine.start({ host, port });
  let stopping = false;
  const stop = () => {
    // A second signal means now.
    if (stopping) process.exit(EXIT_FAILED);
    stopping = true;
    void engine.stop(stopGraceMs).finally(() => process.exit(0));
  };
  process.on('SIGTERM', stop);
  process.on('SIGINT', stop);
  say(`listens on ${host}:${boundPort}, loading ${options.modelFile}`);
  await engine.loaded;
  const tookMs = Math.round(systemClock.monotonicMs() - startMs);
  say(`ready: serves ${options.models.join(', ')} with ${options.slots} slots, loaded in ${tookMs} ms`);
}

/** Why it failed: a missing binary is told apart, because nothing about the model can help then. */
async function explain(error: unknown): Promise<never> {
  const availability = await embeddedAvailable();
  if (!availability.available) {
    say(availability.reason);
    process.exit(EXIT_NO_BINARY);
  }
  for (
    let cause: unknown = error;
    cause !== undefined;
    cause = cause instanceof Error ? cause.cause : undefined
  ) {
    say(cause instanceof Error ? cause.message : inspect(cause));
  }
  process.exit(EXIT_FAILED);
}

run(readCommandLine()).catch(explain);
