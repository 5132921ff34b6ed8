import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { waitFor } from './wait-for.js';

/** Runs a program on a terminal of its own and passes on what it writes; gives its exit code, or 128 and the signal. */
const PROGRAM = `
import fcntl, os, pty, select, struct, sys, termios
columns, command = int(sys.argv[1]), sys.argv[2:]
master, slave = pty.openpty()
fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack('HHHH', 40, columns, 0, 0))
child = os.fork()
if child == 0:
    os.setsid()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    for fd in (0, 1, 2): os.dup2(slave, fd)
    os.execvp(command[0], command)
os.close(slave)
keys = [0]
while True:
    ready = select.select([master] + keys, [], [])[0]
    if master in ready:
        try: data = os.read(master, 65536)
        except OSError: data = b''
        if not data: break
        os.write(1, data)
    if 0 in ready:
        typed = os.read(0, 1024)
        if typed: os.write(master, typed)
        else: keys = []
status = os.waitpid(child, 0)[1]
sys.exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status))
`;

/** Whether this machine can give a program a terminal. */
export const hasTerminals = spawnSync('python3', ['-c', 'import pty, termios']).status === 0;

/** A program on a terminal. */
export class TerminalProcess {
  /** Everything written so far, with its control sequences. */
  screen = '';
  exitCode: number | undefined;
  private readonly child: ChildProcess;

  constructor(command: readonly string[], columns: number, env: Readonly<Record<string, string>> = {}) {
    const { PATH = '', HOME = '' } = process.env;
    this.child = spawn('python3', ['-c', PROGRAM, String(columns), ...command], {
      env: { PATH, HOME, TERM: 'xterm', ...env },
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    this.child.stdout?.setEncoding('utf8').on('data', (text: string) => (this.screen += text));
    this.child.on('close', (code) => (this.exitCode = code ?? -1));
  }

  /** Text without control sequences. */
  get text(): string {
    // oxlint-disable-next-line no-control-regex -- escape sequences are what it looks for
    return this.screen.replace(/\u001b\[[0-9;?]*[A-Za-z]/g, '').replaceAll('\r', '');
  }

  get lines(): string[] {
    return this.text.split('\n').filter((line) => line !== '');
  }

  type(keys: string): void {
    this.child.stdin?.write(keys);
  }

  shows(what: string | RegExp): Promise<unknown> {
    const found = () => (typeof what === 'string' ? this.text.includes(what) : what.test(this.text));
    return waitFor(() => (found() ? true : undefined), {
      what: `${what} on: ${this.text}`,
      deadlineMs: 15_000,
    });
  }

  async ended(): Promise<number> {
    await waitFor(() => (this.exitCode === undefined ? undefined : true), {
      what: `the end of: ${this.text}`,
      deadlineMs: 15_000,
    });
    return this.exitCode!;
  }

  kill(): void {
    this.child.kill('SIGKILL');
  }
}
