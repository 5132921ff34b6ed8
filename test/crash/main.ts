/* oxlint-disable no-console -- a program for people */
/** `npm run crash -- --kills N --seed S`: kills processes while they write to a store and looks for lost writes. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { killWriters } from './kill-writer.js';
import { writeUntilKilled } from './writer.js';

const { values } = parseArgs({
  options: {
    writer: { type: 'string' },
    kills: { type: 'string', default: '1000' },
    seed: { type: 'string', default: '1' },
  },
});

if (values.writer === undefined) await drive(Number(values.kills), Number(values.seed));
else {
  const { writer } = values;
  process.stdin.once('data', () => writeUntilKilled(writer));
  process.stdout.write('ready\n');
}

async function drive(kills: number, seed: number): Promise<void> {
  const stateDir = mkdtempSync(join(tmpdir(), 'llmgw-crash-'));
  const startedMs = performance.now();
  try {
    const entry = fileURLToPath(import.meta.url);
    const result = await killWriters({ entry, stateDir, kills, seed });
    const seconds = ((performance.now() - startedMs) / 1000).toFixed(0);
    console.log(
      `${result.kills} SIGKILLs in ${seconds} s, ${result.early} of them before the first write; ` +
        `${result.acknowledged} changes written; ${result.fault ?? 'every acknowledged one was there, each whole'}`,
    );
    if (result.fault !== undefined) console.log(`  again: npm run crash -- --kills ${kills} --seed ${seed}`);
    process.exitCode = result.fault === undefined ? 0 : 1;
  } finally {
    rmSync(stateDir, { recursive: true, force: true });
  }
}
