/** What `up` serves when nobody said what: pure choices, no files, no processes. */
import { ModelConfig, ProfileConfig } from '../../config/server-config.js';
import type { EngineKind } from '../../domain/model-spec.js';
import { usageError } from '../llmgw-command.js';

/** A model of the command line. */
export interface WantedModel {
  readonly name: string;
  readonly engine: Extract<EngineKind, 'embedded' | 'sim'>;
  /** Absolute path of the weights; none for `sim`. */
  readonly source?: string;
}

/** Reads `NAME=SOURCE`, where the source is a GGUF file or the word `sim`. `resolve` makes paths absolute. */
export function parseModelFlag(spec: string, resolve: (path: string) => string): WantedModel {
  const at = spec.indexOf('=');
  const name = spec.slice(0, at).trim();
  const source = spec.slice(at + 1).trim();
  if (at < 1 || name === '' || source === '') {
    throw usageError(
      `--model "${spec}": expected NAME=SOURCE`,
      'SOURCE is a .gguf file, or "sim" for a simulated engine',
    );
  }
  if (source === 'sim') return { name, engine: 'sim' };
  return { name, engine: 'embedded', source: resolve(source) };
}

/** As the configuration has it: one replica, on the CPU. */
export function toModelConfig(model: WantedModel): ModelConfig {
  const profile = Object.assign(new ProfileConfig(), { name: model.engine, engine: model.engine });
  return Object.assign(new ModelConfig(), {
    name: model.name,
    profiles: [profile],
    ...(model.source === undefined ? {} : { source: model.source }),
  });
}
