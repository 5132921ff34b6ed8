/** All shards of this node: takes commands, keeps the record, takes over what an earlier agent left. */
import type { CommandResult, DrainOrder, StartOrder, StopOrder } from '../agent-protocol/messages.js';
import type { NodeCondition, ShardReport } from '../domain/cluster.js';
import { errorChain } from '../shared/errors.js';
import type { RefusalCause } from '../domain/reconcile/refusal.js';
import type { Logger } from '../shared/logger.js';
import { planAdoption, type AdoptionPlan } from './adoption.js';
import type { GpuHolder } from './gpu/emptiness.js';
import { EXITED_SHARDS_MAX, SHARD_DIRECTORIES_MAX } from './limits.js';
import { ownershipOf, type EngineOwner } from './ownership.js';
import type { ProcessFacts, ProcessTable } from './process-table.js';
import { removeOldest } from './old-directories.js';
import { shardDirectory } from './shard-directory.js';
import { ShardRunner, type RunnerDeps } from './shard-runner.js';
import type { AgentState, LoadedState, StateFile, StoredGpu } from './state-file.js';

export interface ShardSetDeps {
  readonly logger: Logger;
  readonly owner: EngineOwner;
  readonly processes: ProcessTable;
  readonly stateFile: StateFile;
  readonly loaded: LoadedState;
  /** Devices to remember with the shards. */
  readonly gpus: () => readonly StoredGpu[];
  readonly changed: () => void;
  /** The runners' needs; asked for late, because some of them need this set. */
  readonly runner: () => Omit<RunnerDeps, 'persist' | 'changed'>;
}

/** Shards whose generation is remembered after they are gone. */
const GENERATIONS_MAX = 1024;
/** Processes remembered as ours or not. */
const MARKED_MAX = 4_096;
/** What is left of a lost record has no business running on. */
const ORPHAN_GRACE_MS = 10_000;

export class ShardSet {
  private readonly runners = new Map<string, ShardRunner>();
  /** Earlier generations that still make room for a later one. */
  private readonly making = new Set<ShardRunner>();
  private readonly generations: Map<string, number>;
  private readonly marked = new Map<number, { readonly startTicks: number; readonly ours: boolean }>();
  private term: number;
  private portRange: AgentState['portRange'];
  private readonly notes: NodeCondition[] = [];

  constructor(private readonly deps: ShardSetDeps) {
    this.term = deps.loaded.state.highestTerm;
    this.generations = new Map(deps.loaded.state.generations);
    this.portRange = deps.loaded.state.portRange;
  }

  get highestTerm(): number {
    return this.term;
  }

  /** Obeys this term from now on and no lower one. */
  raiseTerm(term: number): void {
    if (term <= this.term) return;
    this.term = term;
    this.persist();
  }

  /** Keeps what ports the server gives to engines, for whoever looks the machine over. */
  learnPorts(portRange: AgentState['portRange']): void {
    if (portRange === undefined || portRange.join() === this.portRange?.join()) return;
    this.portRange = portRange;
    this.persist();
  }

  /** Takes over what runs, stops what nobody knows; to be awaited before any command is taken. */
  async recover(): Promise<void> {
    const { loaded, logger, processes, owner } = this.deps;
    if (loaded.movedAside !== undefined)
      logger.warn({ file: loaded.movedAside }, 'the state file could not be read and was moved aside');
    const plan = planAdoption(owner, loaded.state.shards, processes, loaded.lost);
    this.noteLost(loaded, plan);
    for (const { stored, identity } of plan.adopt) {
      logger.info({ shard: stored.spec.shardId, pid: identity.pid }, 'engine of an earlier agent taken over');
      this.add(ShardRunner.adopt(stored, identity, this.runnerDeps()));
    }
    for (const { stored, end, unseen } of plan.ended)
      this.add(await ShardRunner.ended(stored, end, unseen, this.runnerDeps()));
    await Promise.all(
      plan.orphans.map(async (orphan) => {
        const name = orphan.engine.mark ?? orphan.engine.directory;
        logger.warn({ engine: name, pids: orphan.pids }, 'orphan of an earlier agent is stopped');
        const { survivors } = await this.deps.runner().supervisor.endOrphan(orphan, ORPHAN_GRACE_MS);
        const left = survivors.length === 0 ? '' : `; ${survivors.join(', ')} could not be ended`;
        this.note('OrphanStopped', `processes ${orphan.pids.join(', ')} of ${name} had no record${left}`);
      }),
    );
    this.persist();
  }

  start(order: StartOrder): CommandResult {
    const { commandId, command } = order;
    const stale = this.staleTerm(order.term);
    if (stale !== undefined) return refused(commandId, stale, 'staleTerm');
    const { shardId, generation } = command;
    const present = this.runners.get(shardId);
    if (present?.spec.generation === generation) return { commandId, outcome: 'already' };
    const highest = this.generations.get(shardId) ?? 0;
    if (generation <= highest)
      return refused(
        commandId,
        `generation ${generation} of ${shardId} is over, ${highest} was seen`,
        'oldGeneration',
      );
    // Ended ones say nothing new; a live one makes room first.
    const after = present === undefined ? Promise.resolve() : this.makeRoom(present);
    this.add(ShardRunner.start(command, this.runnerDeps(), after));
    void this.forgetDirectories();
    this.deps.changed();
    return { commandId, outcome: 'accepted' };
  }

  /** Shards come and go under new names; what the longest gone ones printed nobody asks for any more. */
  private async forgetDirectories(): Promise<void> {
    const { shardsDir } = this.deps.runner();
    const kept = new Set([...this.runners.keys()].map((shardId) => shardDirectory(shardsDir, shardId)));
    try {
      await removeOldest(shardsDir, kept, SHARD_DIRECTORIES_MAX);
    } catch (error) {
      this.deps.logger.warn({ causes: errorChain(error) }, 'old shard directories cannot be removed');
    }
  }

  private async makeRoom(present: ShardRunner): Promise<void> {
    this.making.add(present);
    await present.stop(present.spec.stopGraceMs);
    this.making.delete(present);
  }

  stop(order: StopOrder): CommandResult {
    const { commandId, shardId, generation } = order;
    const stale = this.staleTerm(order.term);
    if (stale !== undefined) return refused(commandId, stale, 'staleTerm');
    const present = this.runners.get(shardId);
    if (present !== undefined && present.spec.generation > generation)
      return refused(
        commandId,
        `${shardId} runs generation ${present.spec.generation} by now`,
        'oldGeneration',
      );
    // A start of this generation that is still on its way must not come to life.
    this.remember(shardId, generation);
    if (present === undefined) {
      this.persist();
      return { commandId, outcome: 'already' };
    }
    if (present.hasEnded) {
      this.runners.delete(shardId);
      this.persist();
      this.deps.changed();
      return { commandId, outcome: 'already' };
    }
    this.deps.logger.info({ shard: shardId, generation, graceMs: order.graceMs }, 'shard is being stopped');
    void present.stop(order.graceMs);
    return { commandId, outcome: 'accepted' };
  }

  /** Advisory: the shard only finishes what it has, or takes requests again. */
  drain(order: DrainOrder): CommandResult {
    const stale = this.staleTerm(order.term);
    if (stale !== undefined) return refused(order.commandId, stale, 'staleTerm');
    const present = this.runners.get(order.shardId);
    if (present?.spec.generation !== order.generation || present.hasEnded)
      return { commandId: order.commandId, outcome: 'already' };
    present.drain(!order.over);
    return { commandId: order.commandId, outcome: 'accepted' };
  }

  reports(): ShardReport[] {
    return [...this.runners.values()].map((runner) => runner.report());
  }

  conditions(): readonly NodeCondition[] {
    const { writeError } = this.deps.stateFile;
    if (writeError === undefined) return this.notes;
    return [
      ...this.notes,
      {
        type: 'StateDirUnwritable',
        reason: `the agent cannot write its state: ${writeError}`,
        blocksPlacement: true,
      },
    ];
  }

  find(shardId: string): ShardRunner | undefined {
    return this.runners.get(shardId);
  }

  /** True while engines of this node run. */
  get anyLive(): boolean {
    return this.live().length > 0;
  }

  /** Live shards other than one, with the devices they hold. */
  holders(exceptShardId: string): GpuHolder[] {
    return this.live()
      .filter((runner) => runner.spec.shardId !== exceptShardId)
      .map(({ spec }) => ({
        shardId: spec.shardId,
        gpuUuids: spec.gpuUuids,
        ...(spec.gpuMemoryBytes === undefined ? {} : { memoryBytes: spec.gpuMemoryBytes }),
      }));
  }

  /** A shard that loads the same source now. */
  loaderOf(source: string, exceptShardId: string): string | undefined {
    return [...this.runners.values()].find(
      (runner) => runner.isLoading && runner.spec.source === source && runner.spec.shardId !== exceptShardId,
    )?.spec.shardId;
  }

  /** True for processes of our engines. */
  isOurs(pid: number): boolean {
    const { processes } = this.deps;
    const facts = processes.read(pid);
    if (facts === undefined) return false;
    if (this.live().some((runner) => runner.leaderPid === facts.groupId)) return true;
    return this.isMarked(facts);
  }

  /** Reading an environment may block on a process that is stuck, so each is read once. */
  private isMarked({ pid, startTicks }: ProcessFacts): boolean {
    const known = this.marked.get(pid);
    if (known?.startTicks === startTicks) return known.ours;
    const ours = ownershipOf(this.deps.owner, this.deps.processes, pid) !== undefined;
    if (this.marked.size >= MARKED_MAX) this.marked.clear();
    this.marked.set(pid, { startTicks, ours });
    return ours;
  }

  /** Ports our shards were given: taken by us, not by somebody else. */
  ports(): Set<number> {
    return new Set(
      this.live().flatMap(({ spec }) => [spec.ports.http, spec.ports.rendezvous ?? spec.ports.http]),
    );
  }

  /** Ends every engine of this node. */
  async stopAll(): Promise<void> {
    await Promise.all(this.live().map((runner) => runner.stop(runner.spec.stopGraceMs)));
  }

  /** Kills every engine of this node, at once and without waiting. */
  killAll(): void {
    for (const runner of this.live()) runner.kill();
  }

  /** Leaves every engine running and stops watching. */
  async leaveAll(): Promise<void> {
    await Promise.all(this.live().map((runner) => runner.leave()));
  }

  private live(): ShardRunner[] {
    return [...this.runners.values(), ...this.making].filter((runner) => !runner.hasEnded);
  }

  private add(runner: ShardRunner): void {
    this.remember(runner.spec.shardId, runner.spec.generation);
    // Delete first: a replaced shard counts as the newest.
    this.runners.delete(runner.spec.shardId);
    this.runners.set(runner.spec.shardId, runner);
    const ended = [...this.runners.values()].filter((candidate) => candidate.hasEnded);
    for (const old of ended.slice(0, Math.max(0, ended.length - EXITED_SHARDS_MAX)))
      this.runners.delete(old.spec.shardId);
  }

  private runnerDeps(): RunnerDeps {
    return { ...this.deps.runner(), persist: () => this.persist(), changed: () => this.deps.changed() };
  }

  private remember(shardId: string, generation: number): void {
    const highest = Math.max(generation, this.generations.get(shardId) ?? 0);
    this.generations.delete(shardId);
    this.generations.set(shardId, highest);
    for (const [oldest] of this.generations) {
      if (this.generations.size <= GENERATIONS_MAX) break;
      this.generations.delete(oldest);
    }
  }

  private staleTerm(term: number): string | undefined {
    if (term < this.term) return `term ${term} is over, this agent obeys ${this.term}`;
    this.raiseTerm(term);
    return undefined;
  }

  /** Something that is kept with the shards changed. */
  save(): void {
    this.persist();
    this.deps.changed();
  }

  private persist(): boolean {
    const { stateFile, logger } = this.deps;
    const before = stateFile.writeError;
    const state: AgentState = {
      highestTerm: this.term,
      generations: [...this.generations],
      shards: [...this.runners.values()].map((runner) => runner.stored()),
      gpus: this.deps.gpus(),
      ...(this.portRange === undefined ? {} : { portRange: this.portRange }),
    };
    const saved = stateFile.save(state);
    if (stateFile.writeError !== before) {
      if (!saved) logger.error({ reason: stateFile.writeError }, 'the agent cannot write its state');
      this.deps.changed();
    }
    return saved;
  }

  /** On a first start there is no record either, but nothing that runs. */
  private noteLost({ lost, movedAside }: LoadedState, { adopt }: AdoptionPlan): void {
    if (!lost || (movedAside === undefined && adopt.length === 0)) return;
    const what = movedAside === undefined ? 'was gone' : 'could not be read';
    this.note('StateFileRebuilt', `the state file ${what}; engines were found by their markers`);
  }

  private note(type: string, reason: string): void {
    this.notes.push({ type, reason, blocksPlacement: false });
  }
}

function refused(commandId: string, message: string, cause: RefusalCause): CommandResult {
  return { commandId, outcome: 'refused', message, cause };
}
