/** A vendor's tool that answers from a table a test can change at any time. */
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

export interface FakeAnswer {
  /** Part of the joined arguments. */
  readonly when: string;
  readonly stdout?: string;
  readonly stderr?: string;
  readonly code?: number;
  /** Prints so many bytes after `stdout`. */
  readonly flood?: number;
  /** Prints nothing and never ends, deaf to TERM. */
  readonly hang?: boolean;
}

const PROGRAM = `#!${process.execPath}
const { readFileSync, appendFileSync } = require('node:fs');
const { join } = require('node:path');
const directory = ${'DIRECTORY'};
const args = process.argv.slice(2).join(' ');
appendFileSync(join(directory, 'calls'), args + '\\n');
const answers = JSON.parse(readFileSync(join(directory, 'answers.json'), 'utf8'));
const answer = answers.find((one) => args.includes(one.when)) ?? { stderr: 'no such command', code: 9 };
if (answer.hang) { process.on('SIGTERM', () => {}); setInterval(() => {}, 1000); }
else { process.stdout.write((answer.stdout ?? '') + 'x'.repeat(answer.flood ?? 0)); process.stderr.write(answer.stderr ?? ''); process.exitCode = answer.code ?? 0; }
`;

export class FakeTool {
  readonly directory = mkdtempSync(join(tmpdir(), 'llmgw-tool-'));
  readonly path: string;

  constructor(name: string) {
    this.path = join(this.directory, name);
    writeFileSync(this.path, PROGRAM.replace('DIRECTORY', JSON.stringify(this.directory)));
    chmodSync(this.path, 0o755);
    writeFileSync(join(this.directory, 'calls'), '');
    this.answer([]);
  }

  answer(answers: readonly FakeAnswer[]): void {
    writeFileSync(join(this.directory, 'answers.json'), JSON.stringify(answers));
  }

  /** Arguments of every call so far. */
  get calls(): string[] {
    return readFileSync(join(this.directory, 'calls'), 'utf8').split('\n').slice(0, -1);
  }

  remove(): void {
    rmSync(this.directory, { recursive: true, force: true });
  }
}
