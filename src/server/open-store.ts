import type { ServerConfig } from '../config/server-config.js';
import { StoreMetrics } from '../metrics/store.metrics.js';
import type { Clock } from '../shared/clock.js';
import { MemoryStore } from '../store/memory-store.js';
import type { StateStore } from '../store/ports.js';
import { SqliteStore } from '../store/sqlite-store.js';

/** Whether the server places and runs models itself; without any it only routes. */
export function isControlPlane(config: ServerConfig): boolean {
  return config.models.length > 0;
}

/**
 * The state of the server. A router-only run decides nothing that must be remembered, so it leaves no files behind and
 * two of them may share a directory, unless it keeps API keys.
 */
export function openStore(config: ServerConfig, clock: Clock): StateStore {
  if (!isControlPlane(config) && !config.auth.apiKeys.required) return new MemoryStore();
  const metrics = new StoreMetrics();
  return SqliteStore.open({
    stateDir: config.stateDir,
    clock,
    onWrite: (durationMs) => metrics.written(durationMs),
  });
}
