import { Module } from '@nestjs/common';
import { InjectCommander } from 'nest-commander';
import { AgentCommand } from './agent.command.js';
import { BenchCommand } from './bench.command.js';
import { ConfigCommand } from './config.command.js';
import { CtlCommand } from './ctl/ctl.command.js';
import { ServerCommand } from './server.command.js';
import { UpCommand } from './up.command.js';
import { setUpRoot, type CommanderCommand } from './llmgw-command.js';

/** Gives the root command its name and manners; nest-commander makes it bare. */
export class RootSetup {
  constructor(@InjectCommander() root: CommanderCommand) {
    setUpRoot(root);
  }
}

@Module({
  providers: [
    RootSetup,
    ServerCommand,
    AgentCommand,
    UpCommand,
    BenchCommand,
    ...ConfigCommand.registerWithSubCommands(),
    ...CtlCommand.registerWithSubCommands(),
  ],
})
export class CliModule {}
