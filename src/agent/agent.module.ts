import { Module, type DynamicModule } from '@nestjs/common';
import { AGENT_CONFIG, type AgentConfig } from '../config/agent-config.js';
import { CLOCK, type Clock } from '../shared/clock.js';
import { LOGGER, type Logger } from '../shared/logger.js';
import { RANDOM, type Random } from '../shared/random.js';
import { Agent } from './agent.js';
import type { AgentTimings } from './limits.js';

export const AGENT_TIMINGS = Symbol('AgentTimings');
/** Version and instance of this process, for the hello. */
export const AGENT_BUILD = Symbol('AgentBuild');

export interface AgentBuild {
  readonly version: string;
  readonly instanceId: string;
}

/** What the outside gives: configuration, time, chance. */
export interface AgentWorld {
  readonly config: AgentConfig;
  readonly logger: Logger;
  readonly clock: Clock;
  readonly random: Random;
  readonly timings: AgentTimings;
  readonly build: AgentBuild;
}

@Module({})
export class AgentModule {
  static of(world: AgentWorld): DynamicModule {
    return {
      module: AgentModule,
      providers: [
        { provide: AGENT_CONFIG, useValue: world.config },
        { provide: LOGGER, useValue: world.logger },
        { provide: CLOCK, useValue: world.clock },
        { provide: RANDOM, useValue: world.random },
        { provide: AGENT_TIMINGS, useValue: world.timings },
        { provide: AGENT_BUILD, useValue: world.build },
        {
          provide: Agent,
          inject: [AGENT_CONFIG, LOGGER, CLOCK, RANDOM, AGENT_TIMINGS, AGENT_BUILD],
          useFactory: (
            config: AgentConfig,
            logger: Logger,
            clock: Clock,
            random: Random,
            timings: AgentTimings,
            build: AgentBuild,
          ) =>
            new Agent({
              config,
              logger,
              clock,
              random,
              timings,
              build: build.version,
              instanceId: build.instanceId,
            }),
        },
      ],
      exports: [Agent],
    };
  }
}
