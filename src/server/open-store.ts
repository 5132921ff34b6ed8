import { existsSync } from 'node:fs';
import type { ServerConfig } from '../config/server-config.js';
import { StoreMetrics } from '../metrics/store.metrics.js';
import type { Clock } from '../shared/clock.js';
import { errorChain } from '../shared/errors.js';
import type { Logger } from '../shared/logger.js';
import { LateStore } from '../store/late-store.js';
import { StoreError, type StateStore } from '../store/ports.js';
import { SqliteStore } from '../store/sqlite-store.js';
import { stateFiles } from '../store/state-files.js';

/** Whether the server places and runs models itself; without any it only routes. */
export function isControlPlane(config: ServerConfig): boolean {
  return config.models.length > 0;
}

/**
 * The state of the server. A router-only run decides nothing that must be remembered, so it leaves no files behind and
 * two of them may share a directory, until it has API keys or tokens to keep.
 */
export function openStore(config: ServerConfig, clock: Clock, logger: Logger): StateStore {
  const { stateDir } = config;
  let metrics: StoreMetrics | undefined;
  const onDisk = () => {
    const measured = (metrics ??= new StoreMetrics());
    return SqliteStore.open({ stateDir, clock, onWrite: (durationMs) => measured.written(durationMs) });
  };
  if (isControlPlane(config) || config.auth.apiKeys.required) return onDisk();
  if (!existsSync(stateFiles(stateDir).marker)) return new LateStore(onDisk);
  try {
    return onDisk();
  } catch (error) {
    if (!(error instanceof StoreError) || error.code !== 'locked') throw error;
    // Nothing here depends on it: keys are not required, and those of the other server are its own.
    logger.warn(
      { causes: errorChain(error) },
      'the state directory is in use; keys and tokens kept there are not known here',
    );
    return new LateStore(onDisk);
  }
}
