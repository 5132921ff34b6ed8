import { SimEngine } from '../../../src/engines/sim/sim-engine.js';
import type { SimOptions } from '../../../src/engines/sim/options.js';
import type { Question } from './adapters/client-kind.js';
import { CLIENT_KINDS } from './client-kinds.js';
import type { EndpointSetup } from './gateway.js';

/** The kinds with a number: each has engines of its own, so that tests of different kinds do not disturb each other. */
export const NUMBERED_KINDS = CLIENT_KINDS.map((kind, index) => ({ kind, index, name: kind.name }));

/** What is asked where the question does not matter. */
export const ASK: Question = { prompt: 'Tell me about errors', maxTokens: 24, seed: 5 };

/** The same question (and so the same answer) with a fault for the engine of that name, or for any that gets it. */
export function faulty(fault: string, engine?: string): Question {
  const target = engine === undefined ? '' : `@${engine}`;
  return { ...ASK, prompt: `${ASK.prompt}[[fault${target}:${fault}]]` };
}

/** Simulated engines in this process, by the model they serve and a name of their own. */
export class Fleet {
  private readonly engines: {
    readonly model: string;
    readonly engine: SimEngine;
    readonly limit?: number;
  }[] = [];

  async add(
    model: string,
    name: string,
    options: Partial<SimOptions> & { readonly maxConcurrency?: number } = {},
  ): Promise<void> {
    const { maxConcurrency, ...simOptions } = options;
    const engine = new SimEngine({ models: [model], name, ...simOptions });
    await engine.start();
    this.engines.push({ model, engine, ...(maxConcurrency === undefined ? {} : { limit: maxConcurrency }) });
  }

  get(model: string, name = 'only'): SimEngine {
    const found = this.engines.find((entry) => entry.model === model && entry.engine.options.name === name);
    if (found === undefined) throw new Error(`no engine ${name} of ${model}`);
    return found.engine;
  }

  endpoints(): EndpointSetup[] {
    return this.engines.map(({ model, engine, limit }) => ({
      id: `${model}-${engine.options.name}`,
      url: engine.url,
      models: [model],
      ...(limit === undefined ? {} : { maxConcurrency: limit }),
    }));
  }

  async stop(): Promise<void> {
    for (const { engine } of this.engines) await engine.stop();
  }
}
