/**
 * A node's agent as the protocol describes it: keeps what it was told across its own restarts, obeys no lower term, starts a
 * generation once, calls a shard exited only when its devices are empty. It is honest; what lies in this simulation are engines,
 * clocks and networks.
 */
import type {
  CommandResult,
  Hello,
  NodeReport,
  StartOrder,
  StopOrder,
} from '../../src/agent-protocol/messages.js';
import { type ShardPhase, type ShardReport, shardKey, type Verdict } from '../../src/domain/cluster.js';
import type { StartShardCommand } from '../../src/domain/plan.js';
import { breakGang, rankLoaded } from './gangs.js';
import type { Machine, Process } from './machine.js';
import type { Session } from './network.js';
import type { World } from './world.js';

/** One shard in the agent's state file. */
interface AgentShard {
  readonly command: StartShardCommand;
  phase: ShardPhase;
  phaseSinceMs: number;
  startedMs: number;
  loadMs?: number;
  stopping: boolean;
  verdict?: Verdict;
  exitCode?: number;
  exitSignal?: string;
  message?: string;
}

const HEARTBEAT_MS = 5_000;
/** Both ends give up a link that stays silent this long. */
export const SILENCE_LIMIT_MS = 15_000;
const EXITED_MAX = 8;
/** A start without a token is given up after this long: an engine may hang, or wait for a rank that never comes. */
const START_TIMEOUT_MS = 90_000;

export class Agent {
  running = true;
  frozen = false;
  session: Session | undefined;
  lastHeardMs = 0;
  // The state file.
  highestTerm = 0;
  readonly shards = new Map<string, AgentShard>();
  readonly #generations = new Map<string, number>();

  #instance = 1;
  #sequence = 0;
  #reportSoon = false;
  #dialling = false;
  #retries = 0;

  constructor(
    readonly world: World,
    readonly machine: Machine,
  ) {
    this.#beat(this.#instance);
    this.#watch(this.#instance);
    this.dial(0);
  }

  get #alive(): boolean {
    return this.running && this.machine.up && !this.frozen;
  }

  // -------------------------------------------------------------- life of the agent process

  /** The agent goes and comes back; engines stay. */
  restart(afterMs: number): void {
    this.running = false;
    this.#instance += 1;
    this.session?.closeByAgent();
    this.world.queue.after(afterMs, () => this.start());
  }

  start(): void {
    if (this.running || !this.machine.up) return;
    this.running = true;
    this.#instance += 1;
    this.#sequence = 0;
    for (const shard of this.shards.values()) this.#readopt(shard);
    this.#beat(this.#instance);
    this.#watch(this.#instance);
    this.dial(0);
  }

  #readopt(shard: AgentShard): void {
    if (shard.phase === 'exited') return;
    const process = this.#processOf(shard);
    if (process === undefined || process.state === 'dead') {
      this.#end(shard, process?.exit?.verdict ?? 'unknown', 'gone while the agent was away');
      return;
    }
    if (shard.stopping) this.#terminate(shard, shard.command.profile.stopGraceMs);
  }

  #processOf(shard: AgentShard): Process | undefined {
    return this.machine.processes.get(shardKey(shard.command.shardId, shard.command.generation));
  }

  // -------------------------------------------------------------- link

  dial(afterMs: number): void {
    if (this.#dialling) return;
    this.#dialling = true;
    const instance = this.#instance;
    this.world.queue.after(afterMs, () => {
      this.#dialling = false;
      if (instance !== this.#instance || !this.#alive) {
        if (this.running && this.machine.up) this.dial(1_000);
        return;
      }
      const session = this.world.network.connect(this);
      if (session === undefined) {
        this.#retries += 1;
        this.dial(this.world.random() * Math.min(30_000, 500 * 2 ** this.#retries));
        return;
      }
      this.#retries = 0;
      this.session = session;
      this.lastHeardMs = this.world.nowMs;
      session.up({ kind: 'hello', hello: this.#hello() });
      this.#sendReport();
    });
  }

  #hello(): Hello {
    return {
      protocolVersion: 1,
      minProtocolVersion: 1,
      build: 'sim',
      nodeId: this.machine.id,
      machineId: this.machine.id,
      bootId: `boot-${this.machine.boot}`,
      instanceId: `${this.machine.id}-${this.#instance}`,
      labels: this.machine.labels,
      address: this.machine.address,
      highestTerm: this.highestTerm,
    };
  }

  sessionClosed(session: Session): void {
    if (this.session !== session) return;
    this.session = undefined;
    if (this.running && this.machine.up) this.dial(100 + this.world.random() * 2_000);
  }

  #beat(instance: number): void {
    this.world.queue.after(HEARTBEAT_MS * (0.9 + 0.2 * this.world.random()), () => {
      if (instance !== this.#instance || !this.running || !this.machine.up) return;
      this.#beat(instance);
      if (this.frozen) return;
      if (this.session !== undefined && this.world.nowMs - this.lastHeardMs > SILENCE_LIMIT_MS)
        this.session.closeByAgent();
      else this.#sendReport();
    });
  }

  changed(): void {
    if (this.#reportSoon) return;
    this.#reportSoon = true;
    this.world.queue.after(50 + this.world.random() * 500, () => {
      this.#reportSoon = false;
      if (this.#alive) this.#sendReport();
    });
  }

  #sendReport(): void {
    const { session } = this;
    if (session === undefined) return;
    this.#sequence += 1;
    // A report may be overtaken by a newer one in the outbox; the first of a stream never is.
    if (session.sentUp > 1 && this.world.chance(this.world.dice.dropReport)) return;
    const whole = this.report();
    const torn = session.sentUp > 1 && this.world.chance(this.world.dice.incompleteReport);
    session.up({
      kind: 'report',
      report: torn
        ? { ...whole, complete: false, shards: whole.shards.slice(1), gpus: whole.gpus.slice(1) }
        : whole,
    });
  }

  report(): NodeReport {
    const { machine } = this;
    return {
      sequence: this.#sequence,
      complete: true,
      gpus: machine.devices
        .filter(({ present }) => present)
        .map((device) => ({
          uuid: device.uuid,
          type: device.type,
          vendor: 'nvidia',
          memoryTotalBytes: device.memoryTotalBytes,
          memoryUsedBytes: machine.usedBytes(device),
          foreign:
            device.foreignBytes > 0 ? [{ pid: 7, name: 'stranger', memoryBytes: device.foreignBytes }] : [],
          health: device.health,
          linkedTo: [],
        })),
      shards: [...this.shards.values()].map((shard) => this.#shardReport(shard)),
      engines: machine.engines.map((kind) => ({ kind })),
      portsTaken: [...machine.portsGrabbed],
      weightsPresent: [],
      conditions: [],
      uptimeMs: this.world.nowMs,
    };
  }

  #shardReport(shard: AgentShard): ShardReport {
    const { command, phase } = shard;
    return {
      shardId: command.shardId,
      replicaId: command.replicaId,
      model: command.model,
      profile: command.profile.name,
      generation: command.generation,
      rank: command.rank,
      phase,
      gpuUuids: command.gpuUuids,
      ports: command.ports,
      specDigest: command.specDigest,
      phaseAgeMs: this.world.nowMs - shard.phaseSinceMs,
      ...(shard.verdict === undefined ? {} : { verdict: shard.verdict }),
      ...(shard.message === undefined ? {} : { message: shard.message }),
      ...(shard.exitCode === undefined ? {} : { exitCode: shard.exitCode }),
      ...(shard.exitSignal === undefined ? {} : { exitSignal: shard.exitSignal }),
      ...(shard.loadMs === undefined ? {} : { loadMs: shard.loadMs }),
    };
  }

  // -------------------------------------------------------------- commands

  /** As a welcome tells it: from now on no lower one. */
  obeys(term: number): void {
    this.highestTerm = Math.max(this.highestTerm, term);
  }

  takeStart(order: StartOrder): CommandResult {
    const { commandId, command, term } = order;
    if (term < this.highestTerm)
      return { commandId, outcome: 'refused', cause: 'staleTerm', message: `stale term ${term}` };
    this.highestTerm = term;
    const present = this.shards.get(command.shardId);
    if (present?.command.generation === command.generation) return { commandId, outcome: 'already' };
    const highest = this.#generations.get(command.shardId) ?? 0;
    if (command.generation <= highest)
      return {
        commandId,
        outcome: 'refused',
        cause: 'oldGeneration',
        message: `generation ${command.generation} is over`,
      };
    if (present !== undefined && present.phase !== 'exited')
      this.world.fail(
        'agent_two_generations',
        `${command.shardId}@${command.generation} while @${present.command.generation} runs`,
      );
    this.#generations.set(command.shardId, command.generation);
    const shard: AgentShard = {
      command,
      phase: 'starting',
      phaseSinceMs: this.world.nowMs,
      startedMs: this.world.nowMs,
      stopping: false,
    };
    this.shards.delete(command.shardId);
    this.shards.set(command.shardId, shard);
    this.#prune();
    this.#spawn(shard);
    this.changed();
    return { commandId, outcome: 'accepted' };
  }

  takeStop(order: StopOrder): CommandResult {
    const { commandId, shardId, generation, term } = order;
    if (term < this.highestTerm)
      return { commandId, outcome: 'refused', cause: 'staleTerm', message: `stale term ${term}` };
    this.highestTerm = term;
    const present = this.shards.get(shardId);
    if (present !== undefined && present.command.generation > generation)
      return {
        commandId,
        outcome: 'refused',
        cause: 'oldGeneration',
        message: `runs ${present.command.generation} by now`,
      };
    this.#generations.set(shardId, Math.max(generation, this.#generations.get(shardId) ?? 0));
    if (present === undefined) return { commandId, outcome: 'already' };
    if (present.phase === 'exited') {
      this.shards.delete(shardId);
      this.changed();
      return { commandId, outcome: 'already' };
    }
    this.#terminate(present, order.graceMs);
    return { commandId, outcome: 'accepted' };
  }

  #prune(): void {
    const ended = [...this.shards.values()].filter(({ phase }) => phase === 'exited');
    for (const old of ended.slice(0, Math.max(0, ended.length - EXITED_MAX)))
      this.shards.delete(old.command.shardId);
  }

  // -------------------------------------------------------------- engines

  #spawn(shard: AgentShard): void {
    const { world, machine } = this;
    const { command } = shard;
    const refusal = world.refusalOf(machine, command);
    if (refusal !== undefined) {
      this.#end(shard, refusal, 'found before the start');
      return;
    }
    const process: Process = {
      key: shardKey(command.shardId, command.generation),
      shardId: command.shardId,
      replicaId: command.replicaId,
      generation: command.generation,
      model: command.model,
      profile: command.profile.name,
      args: command.profile.args,
      rank: command.rank,
      shards: command.shards,
      loaded: false,
      gpuUuids: command.gpuUuids,
      memoryBytes: command.profile.gpuMemoryBytes,
      port: command.ports.http,
      startedMs: world.nowMs,
      state: 'loading',
      holdsGpus: true,
    };
    machine.processes.set(process.key, process);
    world.truthChanged();
    this.#setPhase(shard, 'loading');
    const [least, most] = world.dice.loadMs;
    const loadMs = least + world.random() * (most - least);
    if (world.chance(world.dice.earlyReady))
      world.queue.after(loadMs / 2, () => this.#earlyReady(shard, process));
    world.queue.after(loadMs, () => this.#loaded(shard, process, loadMs));
  }

  /** An engine that calls itself ready before it is, and convinces its agent. */
  #earlyReady(shard: AgentShard, process: Process): void {
    if (process.state === 'loading' && shard.phase === 'loading' && !shard.stopping)
      this.#setPhase(shard, 'ready');
  }

  #loaded(shard: AgentShard, process: Process, loadMs: number): void {
    if (process.state !== 'loading') return;
    const { world } = this;
    if (world.dice.doomed.includes(process.model) || world.chance(world.dice.crashAtStart)) {
      world.kill(this, process, { verdict: 'crashed', exitCode: 1 });
      return;
    }
    shard.loadMs = Math.round(loadMs);
    rankLoaded(world, process);
    // Rank 0 of a gang generates its token when the last of them is there; `#look` sees it then.
    if (process.rank > 0 || process.shards === 1) this.#setReady(shard);
  }

  #setReady(shard: AgentShard): void {
    if (!shard.stopping && shard.phase !== 'exited') this.#setPhase(shard, 'ready');
  }

  #terminate(shard: AgentShard, graceMs: number): void {
    const { world } = this;
    shard.stopping = true;
    this.#setPhase(shard, 'stopping');
    const process = this.#processOf(shard);
    if (process === undefined || process.state === 'dead') {
      this.#settle(shard, process);
      return;
    }
    if (process.state !== 'dying') {
      world.stopping(process);
      process.state = 'dying';
      breakGang(world, process);
    }
    const afterMs = world.chance(world.dice.ignoresTerm) ? graceMs : world.random() * 2_000;
    world.queue.after(afterMs, () => {
      if (process.state === 'dead') return;
      process.state = 'dead';
      world.truthChanged();
      world.release(process, this.machine);
    });
  }

  /** Looks at its processes, as an agent does several times a second. */
  #watch(instance: number): void {
    this.world.queue.after(700, () => {
      if (instance !== this.#instance || !this.running || !this.machine.up) return;
      this.#watch(instance);
      if (this.frozen) return;
      for (const shard of this.shards.values()) this.#look(shard);
    });
  }

  #look(shard: AgentShard): void {
    if (shard.phase === 'exited') return;
    const process = this.#processOf(shard);
    if (process?.state === 'dead') {
      if (shard.phase !== 'stopping') this.#setPhase(shard, 'stopping');
      this.#settle(shard, process);
      return;
    }
    const loadingMs = shard.phase === 'loading' ? this.world.nowMs - shard.phaseSinceMs : 0;
    if (process !== undefined && loadingMs > START_TIMEOUT_MS) {
      this.world.kill(this, process, { verdict: 'noProgress', exitSignal: 'SIGKILL' });
      return;
    }
    if (process?.state === 'hung' && shard.phase === 'ready' && this.world.noticesHang(process))
      this.#setPhase(shard, 'unhealthy');
    // Of any rank but 0 it is only known that it runs.
    const up = process?.state === 'ready' || (process?.loaded === true && process.rank > 0);
    if (up && (shard.phase === 'unhealthy' || shard.phase === 'loading') && !shard.stopping)
      this.#setPhase(shard, 'ready');
  }

  /** Exited is said only when the devices are empty. */
  #settle(shard: AgentShard, process: Process | undefined): void {
    if (process?.holdsGpus === true) return;
    this.#end(shard, shard.stopping ? 'stopped' : (process?.exit?.verdict ?? 'unknown'), undefined, process);
    if (process !== undefined) this.machine.forget(process);
  }

  #end(shard: AgentShard, verdict: string, message?: string, process?: Process): void {
    shard.verdict = verdict as Verdict;
    if (message !== undefined) shard.message = message;
    if (process?.exit?.exitCode !== undefined) shard.exitCode = process.exit.exitCode;
    if (process?.exit?.exitSignal !== undefined) shard.exitSignal = process.exit.exitSignal;
    this.#setPhase(shard, 'exited');
  }

  #setPhase(shard: AgentShard, phase: ShardPhase): void {
    shard.phase = phase;
    shard.phaseSinceMs = this.world.nowMs;
    this.changed();
  }
}
