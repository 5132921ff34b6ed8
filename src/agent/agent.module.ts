import { Module, type DynamicModule } from '@nestjs/common';
import { Agent } from './agent.js';

@Module({})
export class AgentModule {
  /**
   * Around an agent that was made before: what keeps it from being made is for whoever starts it, and Nest would write it
   * to the log first, with its stack.
   */
  static of(agent: Agent): DynamicModule {
    return { module: AgentModule, providers: [{ provide: Agent, useValue: agent }], exports: [Agent] };
  }
}
