import 'reflect-metadata';
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { NestFactory } from '@nestjs/core';
import type { AgentConfig } from '../config/agent-config.js';
import { systemClock, type Clock } from '../shared/clock.js';
import type { Logger } from '../shared/logger.js';
import { NestLogger } from '../shared/nest-logger.js';
import { systemRandom, type Random } from '../shared/random.js';
import { Agent } from './agent.js';
import { AgentModule } from './agent.module.js';
import { DEFAULT_TIMINGS, type AgentTimings } from './limits.js';

export interface AgentStart {
  readonly logger: Logger;
  readonly clock?: Clock;
  readonly random?: Random;
  /** Shorter waits, for tests. */
  readonly timings?: Partial<AgentTimings>;
}

export interface RunningAgent {
  readonly nodeId: string;
  /** What becomes of engines when it is closed. */
  readonly onExit: AgentConfig['onExit'];
  /** Stops every engine the agent runs, and returns when nothing of them lives. */
  stopEngines(): Promise<void>;
  /** Kills what is left of the engines, at once and without waiting. */
  killEngines(): void;
  /** Ends the agent. */
  close(): Promise<void>;
}

/** Starts the agent of this machine. Returns once running engines are taken over; the server may be away. */
export async function startAgent(config: AgentConfig, start: AgentStart): Promise<RunningAgent> {
  const agent = new Agent({
    config,
    logger: start.logger,
    clock: start.clock ?? systemClock,
    random: start.random ?? systemRandom,
    timings: { ...DEFAULT_TIMINGS, ...start.timings },
    build: ownVersion(),
    instanceId: randomUUID(),
  });
  const app = await NestFactory.createApplicationContext(AgentModule.of(agent), {
    logger: new NestLogger(start.logger),
    abortOnError: false,
  });
  try {
    await agent.start();
  } catch (error) {
    await agent.close();
    throw error;
  }
  start.logger.debug({ node: agent.node.nodeId, address: agent.node.address }, 'agent started');
  return {
    nodeId: agent.node.nodeId,
    onExit: agent.onExit,
    stopEngines: () => agent.stopEngines(),
    killEngines: () => agent.killEngines(),
    close: async () => {
      await agent.close();
      await app.close();
    },
  };
}

function ownVersion(): string {
  const text = readFileSync(new URL('../../package.json', import.meta.url), 'utf8');
  return (JSON.parse(text) as { version?: string }).version ?? 'unknown';
}
