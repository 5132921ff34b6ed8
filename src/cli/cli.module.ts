import { Module } from '@nestjs/common';
import { InjectCommander } from 'nest-commander';
import { AgentCommand } from './agent.command.js';
import { ConfigCommand } from './config.command.js';
import { ServerCommand } from './server.command.js';
import { configureCommand, type CommanderCommand } from './llmgw-command.js';

/** Gives the root command its name and manners; nest-commander makes it bare. */
export class RootSetup {
  constructor(@InjectCommander() root: CommanderCommand) {
    configureCommand(root);
    root
      .name('llmgw')
      .description('Turns a handful of GPU machines into one OpenAI-compatible service.')
      .option('-V, --version', 'print the version')
      .option('--debug', 'print stack traces of errors');
  }
}

@Module({
  providers: [RootSetup, ServerCommand, AgentCommand, ...ConfigCommand.registerWithSubCommands()],
})
export class CliModule {}
