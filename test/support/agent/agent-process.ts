/** The agent as a process of its own, so that a spec can kill it. */
import { spawn, type ChildProcess } from 'node:child_process';
import { symlinkSync, writeFileSync } from 'node:fs';
import { resolve } from 'node:path';
import type { AgentTimings } from '../../../src/agent/limits.js';
import type { AgentConfig } from '../../../src/config/agent-config.js';
import { compileSources, type CompiledSources } from '../compiled.js';
import { GivenUp, waitFor } from '../wait-for.js';
import { QUICK } from './agent-world.js';

const MAIN = `
import { startAgent } from './src/agent/bootstrap.js';
import { createLogger } from './src/shared/logger.js';
const { config, timings } = JSON.parse(process.argv[2]);
const logger = createLogger({ level: 'debug', format: 'json' });
const agent = await startAgent(config, { logger, timings });
process.stdout.write('started\\n');
process.on('SIGTERM', () => void agent.close().then(() => process.exit(0)));
`;

export class AgentPrograms {
  private constructor(private readonly compiled: CompiledSources) {}
  private readonly children: ChildProcess[] = [];

  static compile(): AgentPrograms {
    const compiled = compileSources([
      'src/agent',
      'src/agent-protocol',
      'src/config',
      'src/domain',
      'src/shared',
    ]);
    symlinkSync(resolve('proto'), compiled.path('proto'));
    writeFileSync(compiled.path('agent.js'), MAIN);
    return new AgentPrograms(compiled);
  }

  /** Starts an agent, as the last part of the command `below`, and waits until it has taken over what runs. */
  async start(
    config: AgentConfig,
    timings: Partial<AgentTimings> = {},
    below: readonly string[] = [],
  ): Promise<ChildProcess> {
    const own = [
      this.compiled.path('agent.js'),
      JSON.stringify({ config, timings: { ...QUICK, ...timings } }),
    ];
    const [program = '', ...args] = [...below, process.execPath, ...own];
    const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'pipe'] });
    this.children.push(child);
    let text = '';
    child.stdout?.on('data', (chunk: Buffer) => (text += chunk.toString()));
    child.stderr?.on('data', (chunk: Buffer) => (text += chunk.toString()));
    await waitFor(
      () => {
        if (child.exitCode !== null) throw new GivenUp(`the agent ended: ${text}`);
        return text.includes('started\n');
      },
      { what: 'the agent process', deadlineMs: 15_000 },
    );
    return child;
  }

  /** Kills the agents, not their engines. */
  async killAll(): Promise<void> {
    for (const child of this.children.splice(0)) if (child.exitCode === null) await killed(child);
  }

  async dispose(): Promise<void> {
    await this.killAll();
    this.compiled.remove();
  }
}

export async function killed(child: ChildProcess): Promise<void> {
  child.kill('SIGKILL');
  await waitFor(() => child.signalCode, { what: 'the end of the agent' });
}
