/**
 * Streams between agents and server. Within one stream messages keep their order, as TCP does; everything else may happen:
 * delay, silence in one direction, loss of all that was on its way when the stream died, and closes that arrive late.
 */
import type {
  CommandResult,
  Hello,
  NodeReport,
  StartOrder,
  StopOrder,
} from '../../src/agent-protocol/messages.js';
import { type Agent, SILENCE_LIMIT_MS } from './agent.js';
import type { Server } from './server.js';
import type { World } from './world.js';

export type Up =
  | { readonly kind: 'hello'; readonly hello: Hello }
  | { readonly kind: 'report'; readonly report: NodeReport }
  | { readonly kind: 'result'; readonly result: CommandResult };
export type Down =
  | { readonly kind: 'start'; readonly order: StartOrder }
  | { readonly kind: 'stop'; readonly order: StopOrder }
  | { readonly kind: 'ack'; readonly term: number };

export class Network {
  constructor(private readonly world: World) {}

  /** A new stream to whoever listens now; undefined when none can be opened. */
  connect(agent: Agent): Session | undefined {
    const { machine } = agent;
    const server = this.world.listening();
    if (server === undefined || machine.upCut || machine.downCut || !machine.up) return undefined;
    return new Session(this.world, agent, server);
  }
}

export class Session {
  sentUp = 0;
  lastHeardByServerMs: number;
  #upAtMs = 0;
  #downAtMs = 0;
  #openForAgent = true;
  #openForServer = true;
  /** Messages stuck behind a cut. */
  readonly #heldUp: Up[] = [];
  readonly #heldDown: Down[] = [];

  constructor(
    private readonly world: World,
    readonly agent: Agent,
    readonly server: Server,
  ) {
    this.lastHeardByServerMs = world.nowMs;
    this.#watch();
  }

  get nodeId(): string {
    return this.agent.machine.id;
  }

  up(message: Up): void {
    if (!this.#openForAgent) return;
    this.sentUp += 1;
    this.#upAtMs = Math.max(this.#upAtMs, this.world.nowMs + this.#latencyMs());
    this.world.queue.after(this.#upAtMs - this.world.nowMs, () => this.#arriveUp(message));
    if (message.kind === 'report' && this.world.chance(this.world.dice.duplicate))
      this.world.queue.after(this.#upAtMs - this.world.nowMs, () => this.#arriveUp(message));
  }

  down(message: Down): void {
    if (!this.#openForServer) return;
    this.#downAtMs = Math.max(this.#downAtMs, this.world.nowMs + this.#latencyMs());
    this.world.queue.after(this.#downAtMs - this.world.nowMs, () => this.#arriveDown(message));
    if (message.kind !== 'ack' && this.world.chance(this.world.dice.duplicate))
      this.world.queue.after(this.#downAtMs - this.world.nowMs, () => this.#arriveDown(message));
  }

  #latencyMs(): number {
    const [least, most] = this.world.dice.latencyMs;
    return least + this.world.random() * (most - least) + this.agent.machine.extraLatencyMs;
  }

  #arriveUp(message: Up): void {
    if (!this.#openForServer) return;
    if (this.agent.machine.upCut || this.#heldUp.length > 0) {
      this.#heldUp.push(message);
      return;
    }
    this.lastHeardByServerMs = this.world.nowMs;
    this.server.receive(this, message);
  }

  #arriveDown(message: Down): void {
    const { agent } = this;
    if (!this.#openForAgent || !agent.machine.up) return;
    if (agent.machine.downCut || agent.frozen || this.#heldDown.length > 0) {
      this.#heldDown.push(message);
      return;
    }
    this.#obey(message);
  }

  #obey(message: Down): void {
    const { agent } = this;
    if (!agent.running || agent.session !== this) return;
    agent.lastHeardMs = this.world.nowMs;
    if (message.kind === 'ack') agent.obeys(message.term);
    if (message.kind === 'start') this.up({ kind: 'result', result: agent.takeStart(message.order) });
    if (message.kind === 'stop') this.up({ kind: 'result', result: agent.takeStop(message.order) });
  }

  /** What was stuck arrives, in order, when the way is free again. */
  flush(): void {
    const { machine } = this.agent;
    if (!machine.upCut) {
      for (const message of this.#heldUp.splice(0)) this.#arriveUp(message);
    }
    if (!machine.downCut && !this.agent.frozen) {
      for (const message of this.#heldDown.splice(0)) this.#arriveDown(message);
    }
  }

  closeByAgent(): void {
    if (!this.#openForAgent) return;
    this.#openForAgent = false;
    this.agent.sessionClosed(this);
    // The server hears of it late, or only by its own silence limit when the way is cut.
    this.world.queue.after(this.#latencyMs() * 3, () => {
      if (!this.agent.machine.upCut) this.closeByServer();
    });
  }

  closeByServer(): void {
    if (!this.#openForServer) return;
    this.#openForServer = false;
    this.server.sessionClosed(this);
    this.world.queue.after(this.#latencyMs(), () => {
      if (!this.agent.machine.downCut) this.closeByAgent();
    });
  }

  /** Cuts the stream for both ends at once; what was on its way is lost. */
  reset(): void {
    this.#heldUp.length = 0;
    this.#heldDown.length = 0;
    this.closeByServer();
    this.closeByAgent();
  }

  #watch(): void {
    this.world.queue.after(SILENCE_LIMIT_MS / 3, () => {
      if (!this.#openForServer || !this.server.alive) return;
      if (this.server.stalled) return this.#watch();
      if (this.world.nowMs - this.lastHeardByServerMs > SILENCE_LIMIT_MS) this.closeByServer();
      else this.#watch();
    });
  }
}
