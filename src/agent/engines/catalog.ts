/** The engines this machine offers, by its own file; anything else is refused, whoever asks. */
import type { AgentConfig, AgentEngineConfig } from '../../config/agent-config.js';
import { ENGINE_KINDS, type EngineKind, type EngineOffer } from '../../domain/cluster.js';
import { builtInEntry, embeddedDriver, simDriver } from './built-in.js';
import { commandDriver } from './command.js';
import type { EngineDriver } from './driver.js';
import { resolveBinary } from './launch.js';
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

  /** What the node reports: each offered engine, with the reason when it cannot run. */
  offers(): EngineOffer[] {
    return ENGINE_KINDS.filter((kind) => this.offered(kind)).map((kind) => {
      const unavailable = this.unavailable(kind);
      return { kind, ...(unavailable === undefined ? {} : { unavailable }) };
    });
  }

  private offered(kind: EngineKind): boolean {
    if (this.config.engines[kind] !== undefined) return true;
    return this.config.offerBuiltIn && (kind === 'sim' || kind === 'embedded');
  }

  private unavailable(kind: EngineKind): string | undefined {
    const driver = DRIVERS[kind];
    if ((kind === 'sim' || kind === 'embedded') && builtInEntry(kind) === undefined)
      return 'the built-in engine is not built';
    const binary = this.config.engines[kind]?.binary ?? driver.defaultBinary;
    if (binary === undefined) return `engines.${kind}.binary is not set`;
    return resolveBinary(binary, this.ownEnv['PATH']) === undefined
      ? `${binary} is not an executable file`
      : undefined;
  }
}
