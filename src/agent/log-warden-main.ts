/** The log warden as a program: `log-warden-main.js STATE_DIR AGENT_MARK MAX_BYTES`. It outlives the agent. */
import { join } from 'node:path';
import { systemClock } from '../shared/clock.js';
import { tendLogs, WARDEN_LOCK, wardenIsNeeded } from './log-warden.js';
import { systemProcessTable } from './process-table.js';
import { StateLock } from './state-lock.js';
import { pause } from './wait.js';

/** An engine that prints as fast as it can fills this much time's worth of disk beyond the bound. */
const LOOK_MS = 1_000;
/** Reading every process's environment costs more than a look, and nothing hurries. */
const LOOKS_PER_ROLL_CALL = 10;

const [stateDir = '', agent = '', maxBytes = ''] = process.argv.slice(2);
const shardsDir = join(stateDir, 'shards');
const processes = systemProcessTable();

function takeLock(): StateLock {
  try {
    return StateLock.take(stateDir, processes, WARDEN_LOCK);
  } catch {
    // Another one is at work already.
    process.exit(0);
  }
}

const lock = takeLock();
process.on('SIGTERM', () => {
  lock.release();
  process.exit(0);
});
for (let look = 1; await tendLogs(shardsDir, Number(maxBytes)); look++) {
  if (look % LOOKS_PER_ROLL_CALL === 0 && !wardenIsNeeded(stateDir, { agent, shardsDir }, processes)) break;
  await pause(systemClock, LOOK_MS);
}
lock.release();
