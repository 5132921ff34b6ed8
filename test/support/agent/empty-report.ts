import type { NodeReport } from '../../../src/agent-protocol/messages.js';

/** A report of a machine on which there is nothing. */
export const emptyReport = (change: Partial<NodeReport> = {}): NodeReport => ({
  sequence: 1,
  complete: true,
  gpus: [],
  shards: [],
  engines: [],
  portsTaken: [],
  weightsPresent: [],
  conditions: [],
  uptimeMs: 1,
  ...change,
});
