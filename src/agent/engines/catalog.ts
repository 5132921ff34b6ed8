/** The engines this machine offers, by its own file; anything else is refused, whoever asks. */
import type { AgentConfig, AgentEngineConfig } from '../../config/agent-config.js';
import type { EngineOffer } from '../../domain/cluster.js';
import { ENGINE_KINDS, type EngineKind } from '../../domain/model-spec.js';
import { findExecutable } from '../executables.js';
import { builtInEntry, embeddedDriver, simDriver } from './built-in.js';
import { commandDriver } from './command.js';
import type { EngineDriver } from './driver.js';
import { llamacppDriver } from './llamacpp.js';
import { sglangDriver } from './sglang.js';
import { vllmDriver } from './vllm.js';

const DRIVERS: Readonly<Record<EngineKind, EngineDriver>> = {
  vllm: vllmDriver,
  sglang: sglangDriver,
  llamacpp: llamacppDriver,
  command: commandDriver,
  sim: simDriver,
  embedded: embeddedDriver,
};

export class EngineCatalog {
  constructor(
    private readonly config: Pick<AgentConfig, 'engines' | 'offerBuiltIn'>,
    private readonly ownEnv: NodeJS.ProcessEnv,
  ) {}

  /** The driver of an offered engine; undefined when this machine does not offer it. */
  driver(kind: EngineKind): EngineDriver | undefined {
    return this.offered(kind) ? DRIVERS[kind] : undefined;
  }

  settings(kind: EngineKind): AgentEngineConfig | undefined {
    return this.config.engines[kind];
  }

  /** The program of an offered engine with its base arguments, as the agent's file or habit names it. */
  program(kind: EngineKind): readonly string[] {
    const config = this.config.engines[kind];
    return [config?.binary ?? DRIVERS[kind].defaultBinary ?? '', ...(config?.baseArgs ?? [])];
  }

  /** What the node reports: each offered engine, with the reason when it cannot run. */
  async offers(): Promise<EngineOffer[]> {
    const kinds = ENGINE_KINDS.filter((kind) => this.offered(kind));
    return Promise.all(
      kinds.map(async (kind) => {
        const unavailable = await this.unavailable(kind);
        return { kind, ...(unavailable === undefined ? {} : { unavailable }) };
      }),
    );
  }

  private offered(kind: EngineKind): boolean {
    if (this.config.engines[kind] !== undefined) return true;
    return this.config.offerBuiltIn && (kind === 'sim' || kind === 'embedded');
  }

  private async unavailable(kind: EngineKind): Promise<string | undefined> {
    const driver = DRIVERS[kind];
    if ((kind === 'sim' || kind === 'embedded') && builtInEntry(kind) === undefined)
      return 'the built-in engine is not built';
    const binary = this.config.engines[kind]?.binary ?? driver.defaultBinary;
    if (binary === undefined) return `engines.${kind}.binary is not set`;
    return (await findExecutable(binary, this.ownEnv['PATH'])) === undefined
      ? `${binary} is not an executable file`
      : undefined;
  }
}
