/**
 * The heavy worlds that commands start. Loaded only when asked for: the agent must not pay for the server's modules,
 * nor `config check` for either.
 */
import type { startAgent } from '../agent/bootstrap.js';
import type { EmbeddedAvailability } from '../engines/embedded/availability.js';
import type { startServer } from '../server/bootstrap.js';
import type { createBackup, fillBackup, verifyBackup } from '../store/backup.js';
import type { restoreBackup } from '../store/restore.js';

/** What starts a server. */
export async function loadServerWorld(): Promise<typeof startServer> {
  return (await import('../server/bootstrap.js')).startServer;
}

/** What starts an agent. */
export async function loadAgentWorld(): Promise<typeof startAgent> {
  return (await import('../agent/bootstrap.js')).startAgent;
}

/** What makes, checks and restores backups; SQLite comes with it. */
export async function loadBackupWorld(): Promise<{
  readonly createBackup: typeof createBackup;
  readonly fillBackup: typeof fillBackup;
  readonly verifyBackup: typeof verifyBackup;
  readonly restoreBackup: typeof restoreBackup;
}> {
  return { ...(await import('../store/backup.js')), ...(await import('../store/restore.js')) };
}

/** Whether the built-in llama.cpp runs on this machine, and if not, why. */
export async function embeddedEngine(): Promise<EmbeddedAvailability> {
  const { embeddedAvailable } = await import('../engines/embedded/availability.js');
  return embeddedAvailable();
}

/** Writes the built-in model: whole or not at all. */
export async function writeTinyModelTo(file: string): Promise<void> {
  const { writeTinyModel } = await import('../engines/tiny-model/tiny-model.js');
  await writeTinyModel(file);
}
