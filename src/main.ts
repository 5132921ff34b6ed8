#!/usr/bin/env node
import { quietBrokenPipes, runCli } from './cli/run-cli.js';

quietBrokenPipes();
const exitCode = await runCli(process.argv.slice(2));
process.exitCode = exitCode;
// Output still drains by itself. A handle that somebody forgot must not keep a finished command alive.
setTimeout(() => process.exit(exitCode), 2_000).unref();
