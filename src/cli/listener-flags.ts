import { Option } from 'nest-commander';
import { LlmgwCommand } from './llmgw-command.js';

/** What {@link ListenerFlags} reads. */
export interface ListenerOptions {
  readonly listen?: string;
  readonly adminListen?: string;
  readonly agentListen?: string;
  readonly stateDir?: string;
}

/** The flags of every command that runs a server. */
export abstract class ListenerFlags extends LlmgwCommand {
  @Option({ flags: '--listen <host:port>', description: 'client API (default 127.0.0.1:8080)' })
  parseListen(value: string): string {
    return value;
  }

  @Option({ flags: '--admin-listen <host:port>', description: 'admin API (default 127.0.0.1:8081)' })
  parseAdminListen(value: string): string {
    return value;
  }

  @Option({ flags: '--agent-listen <host:port>', description: 'gRPC for agents (default 127.0.0.1:8082)' })
  parseAgentListen(value: string): string {
    return value;
  }

  @Option({ flags: '--state-dir <dir>', description: 'directory of all state (default ./.llmgw)' })
  parseStateDir(value: string): string {
    return value;
  }
}
