/**
 * The parts of nest-commander that describe commands, without the parts that run them: its index also loads Nest's
 * core, inquirer and a configuration searcher, which together take longer than everything `ctl` does.
 */
export { Command, Option, SubCommand } from 'nest-commander/src/command.decorators.js';
export { CommandRunner } from 'nest-commander/src/command-runner.interface.js';
