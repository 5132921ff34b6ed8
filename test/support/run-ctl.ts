import { runCli } from '../../src/cli/run-cli.js';

/** A command line that was run, with what it printed. */
export interface Ran {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

/** Runs `llmgw <argv>` in this process. Two at a time would mix their output: await each. */
export async function runLlmgw(...argv: string[]): Promise<Ran> {
  const written = { out: '', err: '' };
  const streams = [
    [process.stdout, 'out'],
    [process.stderr, 'err'],
  ] as const;
  const originals = streams.map(([stream]) => stream.write.bind(stream));
  for (const [stream, key] of streams) {
    stream.write = ((text: string) => {
      written[key] += text;
      return true;
    }) as typeof stream.write;
  }
  try {
    const code = await runCli(argv);
    return { code, ...written };
  } finally {
    // A command that ended well may have left a result there, which is not the test runner's.
    process.exitCode = undefined;
    streams.forEach(([stream], at) => (stream.write = originals[at]!));
  }
}
