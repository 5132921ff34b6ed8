import { systemClock } from '../../shared/clock.js';
import { parseSimCommandLine, type SimCommandLine, SimUsageError } from './options.js';
import { SimEngine } from './sim-engine.js';

/** Loading progress is printed in this many steps. */
const PROGRESS_STEPS = 10;

const say = (line: string) => process.stderr.write(`${line}\n`);

function readCommandLine(): SimCommandLine {
  try {
    return parseSimCommandLine(process.argv.slice(2));
  } catch (error) {
    if (!(error instanceof SimUsageError)) throw error;
    say(`sim-engine: error: invalid argument: ${error.message}`);
    process.exit(2);
  }
}

/** Prints what loaders print while weights come in, so that a supervisor sees progress. */
function printProgress(startupMs: number): void {
  for (let step = 1; step <= PROGRESS_STEPS; step++) {
    systemClock.setTimer((startupMs * step) / PROGRESS_STEPS, () => {
      const percent = String((100 * step) / PROGRESS_STEPS).padStart(3);
      say(`Loading safetensors checkpoint shards: ${percent}% Completed | ${step}/${PROGRESS_STEPS}`);
    });
  }
}

async function run({ engine: options, process: own }: SimCommandLine): Promise<void> {
  for (const line of own.logLines) say(line);
  if (own.crashOnStart !== undefined) {
    say(`sim-engine: crashing on start with code ${own.crashOnStart}, as asked`);
    process.exit(own.crashOnStart);
  }
  const engine = new SimEngine(options);
  const stop = () => {
    void engine.stop().finally(() => process.exit(0));
  };
  process.on('SIGINT', stop);
  // An engine that ignores SIGTERM is a fault to rehearse: some builds of real ones do.
  process.on('SIGTERM', own.ignoreSigterm ? () => say('sim-engine: SIGTERM ignored, as asked') : stop);
  if (own.crashAfterMs !== undefined) {
    systemClock.setTimer(own.crashAfterMs, () => {
      say('sim-engine: crashing, as asked');
      process.exit(1);
    });
  }
  if (own.progress) printProgress(options.startupMs);
  await engine.start({ host: own.host, port: own.port });
  say(`sim-engine: ${options.dialect} dialect serves ${options.models.join(', ')} on ${engine.url}`);
}

run(readCommandLine()).catch((error: unknown) => {
  say(`sim-engine: ${error instanceof Error ? error.message : String(error)}`);
  process.exit(1);
});
