import { spawn, type ChildProcess } from 'node:child_process';
import path from 'node:path';
import { expect } from 'vitest';
import type { ListView } from '../../../src/admin-api/views/answers.js';
import type { EndpointView } from '../../../src/admin-api/views/replicas.js';
import { adminGet, Scratch, startServerProcess, type LlmgwProcess } from '../../support/llmgw-process.js';
import { waitFor } from '../../support/wait-for.js';
import { CLIENT_SECRET } from './adapters/client-kind.js';

/** An engine behind the gateway, as its configuration names it. */
export interface EndpointSetup {
  readonly id: string;
  readonly url: string;
  readonly models: readonly string[];
  readonly maxConcurrency?: number;
}

/** Members of the routing profile that every model here uses; see docs/configuration.md. */
export type ProfileSetup = Readonly<Record<string, unknown>>;

/** The built gateway as a process of its own, with static endpoints. */
export class Gateway {
  private constructor(
    readonly process: LlmgwProcess,
    /** Base address of the client API. */
    readonly url: string,
    private readonly urls: Parameters<typeof adminGet>[0],
    private readonly scratch: Scratch,
  ) {}

  static async start(endpoints: readonly EndpointSetup[], profile: ProfileSetup = {}): Promise<Gateway> {
    const scratch = new Scratch();
    // Round robin: whichever replica is broken, the second of two requests meets it.
    const interactive = { policy: 'roundRobin', ...profile };
    const config = { shutdownGrace: '1s', endpoints, router: { profiles: { interactive } } };
    const file = scratch.file('server.yaml', JSON.stringify(config));
    const { process, urls } = await startServerProcess(scratch, ['--config', file]);
    return new Gateway(process, urls.client, urls, scratch);
  }

  async endpoints(): Promise<readonly EndpointView[]> {
    return (await adminGet<ListView<EndpointView>>(this.urls, 'endpoints')).items;
  }

  /** The value of one series as the exposition writes it; 0 while it is not there. */
  async metric(series: string): Promise<number> {
    const text = await (await fetch(`${this.urls.admin}/metrics`)).text();
    const line = text.split('\n').find((found) => found.startsWith(`${series} `));
    return line === undefined ? 0 : Number(line.slice(series.length + 1));
  }

  /** Waits until no request is at any engine. */
  async settled(): Promise<void> {
    await waitFor(async () => (await this.endpoints()).every(({ inflight }) => inflight === 0), {
      what: 'in-flight 0 at every endpoint',
    });
  }

  /** Checks what must hold after whatever happened, and ends the process in order. */
  async stop(): Promise<void> {
    try {
      if (this.process.exited !== undefined) return;
      await this.settled();
      this.process.signal('SIGTERM');
      expect(await this.process.ended()).toEqual({ code: 0, signal: null });
      expect(this.process.stderr).not.toContain(CLIENT_SECRET);
    } finally {
      await this.process.dispose();
      this.scratch.remove();
    }
  }
}

/** A built engine as a process of its own. */
export class EngineProcess {
  private said = '';

  private constructor(private readonly child: ChildProcess) {
    child.stderr?.setEncoding('utf8').on('data', (text: string) => (this.said += text));
    child.stdout?.setEncoding('utf8').on('data', (text: string) => (this.said += text));
  }

  /** Starts it and waits until it serves; resolves with its address. */
  static async start(engine: 'sim' | 'embedded', flags: readonly string[]): Promise<[EngineProcess, string]> {
    const main = path.resolve(import.meta.dirname, '../../../dist/engines', engine, 'main.js');
    const program = new EngineProcess(
      spawn(process.execPath, [main, ...flags], { stdio: ['ignore', 'pipe', 'pipe'] }),
    );
    const url = await waitFor(
      async () => {
        const address = /127\.0\.0\.1:\d+/.exec(program.said)?.[0];
        if (address === undefined) return undefined;
        return (await fetch(`http://${address}/health`)).status === 200 ? `http://${address}` : undefined;
      },
      { deadlineMs: 30_000, what: `the ${engine} engine` },
    );
    return [program, url];
  }

  /** Ends it without any warning. */
  async kill(): Promise<void> {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return;
    const gone = new Promise((resolve) => this.child.once('exit', resolve));
    this.child.kill('SIGKILL');
    await gone;
  }
}
