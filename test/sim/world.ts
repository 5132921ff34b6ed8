/** One simulated history from one seed: the cluster, what happens to it, and the checks after every step. */
import { replicaKey, type Verdict } from '../../src/domain/cluster.js';
import type { ModelSpec } from '../../src/domain/model-spec.js';
import type { Plan, StartShardCommand } from '../../src/domain/plan.js';
import { canonical } from '../../src/domain/catalog/spec-digest.js';
import type { ControlPolicy } from '../../src/domain/reconcile/policy.js';
import { type Random, seededRandom } from '../../src/shared/random.js';
import { GIB } from '../support/cluster-builder.js';
import { Agent } from './agent.js';
import { Checks } from './checks.js';
import { type Dice, drawDice, drawPolicy, type Fault } from './dice.js';
import { EventQueue } from './event-queue.js';
import { breakGang } from './gangs.js';
import { type Device, Machine, type Process } from './machine.js';
import { Network } from './network.js';
import { drawModel, Operator, strike } from './operator.js';
import { Server } from './server.js';
import { Store } from './store.js';
import {
  backUpEveryMs,
  type Theme,
  themedDevices,
  themedDice,
  themedMachines,
  themedModelCount,
  themedPolicy,
  themeOf,
} from './themes.js';

/** A broken invariant. */
export class Broken extends Error {
  override readonly name = 'Broken';
  constructor(
    readonly invariant: string,
    message: string,
  ) {
    super(`${invariant}: ${message}`);
  }
}

const WALL_START_MS = 1_700_000_000_000;

export class World {
  readonly queue = new EventQueue();
  readonly random: Random;
  readonly store = new Store();
  readonly network = new Network(this);
  readonly checks = new Checks(this);
  readonly machines = new Map<string, Machine>();
  readonly agents = new Map<string, Agent>();
  policy: ControlPolicy;
  readonly theme: Theme;
  dice: Dice;
  models: readonly ModelSpec[];
  /** True once the store was set back: generations may then repeat. */
  wasRestored = false;

  /** How often what happened, to see that a run is worth its time. */
  readonly counts = new Map<string, number>();

  #server: Server | undefined;
  #wallOffsetMs = WALL_START_MS;
  #truthDirty = false;
  #calm = false;
  #midway = false;
  readonly #operator = new Operator(this);
  readonly #noticed = new WeakMap<Process, boolean>();

  constructor(seed: number) {
    // The first numbers of near seeds are near each other.
    const random = seededRandom(Math.imul(seed + 1, 0x9e3779b1));
    this.random = random;
    for (let index = 0; index < 8; index += 1) random();
    this.theme = themeOf(seed);
    this.dice = themedDice(this.theme, drawDice(random), random);
    this.policy = themedPolicy(this.theme, drawPolicy(random), random);
    this.#buildMachines();
    this.models = Array.from(
      { length: themedModelCount(this.theme, 1 + Math.floor(random() * 3)) },
      (_, index) => drawModel(this, `m${index}`),
    );
    this.#server = new Server(this);
    for (const machine of this.machines.values()) this.agents.set(machine.id, new Agent(this, machine));
    this.#faults();
    this.#actions();
    this.#requests();
    this.#backups();
  }

  get nowMs(): number {
    return this.queue.nowMs;
  }

  get wallMs(): number {
    return Math.round(this.nowMs + this.#wallOffsetMs);
  }

  #buildMachines(): void {
    const { random } = this;
    const drawn = 2 + Math.floor(random() * 6);
    const count = themedMachines(this.theme, drawn);
    for (let index = 0; index < count; index += 1) {
      const id = `n${index + 1}`;
      const type = random() < 0.7 ? 'A' : 'B';
      const devices: Device[] = Array.from(
        { length: themedDevices(this.theme, Math.floor(random() * 5)) },
        (_, at) => ({
          uuid: `${id}-g${at}`,
          type: random() < 0.9 ? type : 'A',
          memoryTotalBytes: 80 * GIB,
          health: { state: 'healthy' },
          present: true,
          foreignBytes: 0,
        }),
      );
      const engines = random() < 0.7 ? (['sim', 'vllm'] as const) : (['sim'] as const);
      this.machines.set(id, new Machine(id, devices, { rack: `r${index % 2}` }, engines));
    }
  }

  // -------------------------------------------------------------- running

  /** Runs the history: faults for `steps` events, then none, until quiet. Throws `Broken`. */
  run(steps: number): void {
    for (let step = 0; step < steps; step += 1) this.#step();
    this.#liveness();
  }

  #step(): void {
    this.queue.step();
    if (!this.#truthDirty) return;
    this.#truthDirty = false;
    this.checks.truth();
  }

  /** Told what happens, as text, when somebody wants to read along. */
  trace: ((line: string) => void) | undefined;

  say(line: () => string): void {
    this.trace?.(`${(this.nowMs / 1000).toFixed(1)} ${line()}`);
  }

  count(name: string): void {
    this.counts.set(name, (this.counts.get(name) ?? 0) + 1);
  }

  truthChanged(): void {
    this.#truthDirty = true;
  }

  fail(invariant: string, message: string): never {
    throw new Broken(invariant, message);
  }

  chance(probability: number): boolean {
    return probability > 0 && this.random() < probability;
  }

  // -------------------------------------------------------------- the end: faults stop, the cluster must become quiet

  #liveness(): void {
    this.#calm = true;
    this.dice = { ...this.dice, ...PEACE, requestMs: [50, 3_000] };
    if (this.listening() === undefined) this.#server = new Server(this);
    const server = this.listening();
    for (const machine of this.machines.values()) {
      machine.upCut = machine.downCut = machine.dataCut = false;
      machine.extraLatencyMs = 0;
      machine.portsGrabbed.clear();
      for (const device of machine.devices)
        Object.assign(device, { health: { state: 'healthy' }, present: true, foreignBytes: 0 });
      if (!machine.up) this.powerOn(machine);
      const agent = this.agents.get(machine.id);
      if (agent !== undefined) this.thaw(agent);
    }
    server?.wake();
    const untilMs = this.nowMs + CALM_MS;
    let quietSinceMs = this.nowMs;
    let seen = server?.lastPlan;
    while (this.nowMs < untilMs && this.nowMs - quietSinceMs < QUIET_MS) {
      this.#step();
      const plan = this.listening()?.lastPlan;
      if (plan === seen) continue;
      seen = plan;
      if (plan !== undefined && plan.actions.some(({ kind }) => kind !== 'putLearned'))
        quietSinceMs = this.nowMs;
    }
    if (this.nowMs - quietSinceMs < QUIET_MS)
      this.fail(
        'never_quiet',
        `still acting ${Math.round(CALM_MS / 60_000)} min after the last fault: ${describe(seen?.actions ?? [])}`,
      );
    this.#settledAsWanted();
  }

  /** Every model has what it wants, or the plan says why not; and nothing runs that no record names. */
  #settledAsWanted(): void {
    const server = this.listening();
    const plan = server?.lastPlan;
    if (server === undefined || plan === undefined) return this.fail('no_server', 'nobody plans');
    const records = this.store.contents.replicas;
    for (const model of this.models) {
      const ready = plan.published.filter((one) => one.model === model.name).length;
      if (ready === model.replicas) continue;
      const named = [...records.values()]
        .filter((record) => record.model === model.name)
        .map(({ id }) => `replica/${id}`);
      const said = plan.notDone.some(
        ({ subject }) => subject === `model/${model.name}` || named.includes(subject),
      );
      if (!said || ready > model.replicas)
        this.fail(
          'not_as_wanted',
          `${model.name}: ${ready} of ${model.replicas} Ready, and the plan says nothing`,
        );
    }
    const known = new Set([...records.values()].map((record) => replicaKey(record.id, record.generation)));
    for (const machine of this.machines.values())
      for (const process of machine.live())
        if (!known.has(replicaKey(process.replicaId, process.generation)))
          this.fail('left_running', `${process.key} on ${machine.id} has no record`);
    for (const one of plan.published) {
      const process = this.machine(one.nodeId).listener(one.port);
      const evidence = server.router.evidence().get(replicaKey(one.replicaId, one.generation));
      const timeouts = evidence?.firstTokenTimeouts ?? 0;
      // A hang that probes do not show is known by requests, of which too few may have come its way.
      if (process?.state === 'hung' && timeouts < this.policy.hungAfterTimeouts) continue;
      if (process?.state !== 'ready')
        this.fail('published_dead', `${one.replicaId}: ${process?.state ?? 'nothing'} there`);
    }
    this.checks.quiet();
    this.#rolled(plan);
    this.#drained(server);
  }

  /** What runs is what the catalog says, or the plan says why it is not yet. */
  #rolled(plan: Plan): void {
    for (const machine of this.machines.values()) {
      for (const process of machine.live()) {
        const profile = this.models
          .find(({ name }) => name === process.model)
          ?.profiles.find(({ name }) => name === process.profile);
        const said = plan.notDone.some(({ subject }) => subject === `replica/${process.replicaId}`);
        if (!said && canonical(profile?.args) !== canonical(process.args))
          this.fail('not_rolled', `${process.key} runs with ${canonical(process.args)}`);
      }
    }
  }

  /** A drain that may make a gap, or has a deadline given by hand, ends with an empty node. */
  #drained(server: Server): void {
    for (const { id, intent } of server.nodes()) {
      if (intent.target !== 'drained' || (intent.allowGap !== true && intent.deadlineMs === undefined))
        continue;
      const left = this.machine(id)
        .live()
        .filter(({ gpuUuids }) => intent.gpuUuid === undefined || gpuUuids.includes(intent.gpuUuid));
      if (left.length > 0) this.fail('not_drained', `${left.map(({ key }) => key).join(', ')} on ${id}`);
    }
  }

  // -------------------------------------------------------------- what happens by itself

  #faults(): void {
    this.queue.after(-Math.log(1 - this.random()) * this.dice.faultEveryMs, () => {
      if (this.#calm) return;
      const { faults } = this.dice;
      const fault = faults[Math.floor(this.random() * faults.length)];
      if (fault !== undefined) strike(this, fault);
      this.#faults();
    });
  }

  #actions(): void {
    this.queue.after(-Math.log(1 - this.random()) * this.dice.actionEveryMs, () => {
      if (this.#calm) return;
      const action = this.#operator.some();
      if (action !== undefined) this.#operator.act(action);
      this.#actions();
    });
  }

  #requests(): void {
    this.queue.after(-Math.log(1 - this.random()) * this.dice.requestEveryMs, () => {
      const model = this.models[Math.floor(this.random() * this.models.length)];
      if (model !== undefined) this.listening()?.router.send(model.name);
      this.#requests();
    });
  }

  #backups(first = true): void {
    this.queue.after(backUpEveryMs(this.theme, 30_000 + this.random() * 300_000, first), () => {
      if (this.#calm) return;
      this.store.backUp();
      this.#backups(false);
    });
  }

  // -------------------------------------------------------------- the server

  listening(): Server | undefined {
    return this.#server?.alive === true ? this.#server : undefined;
  }

  /** The server goes in one of several ways and comes back after a while. */
  restartServer(server: Server, how: Fault): void {
    if (how === 'serverCrashMidway' && !this.#midway) {
      this.#midway = true;
      return;
    }
    this.#midway = false;
    this.say(() => `server of term ${server.term} goes: ${how}`);
    // A zombie goes on for as long as it believes that it is the one.
    if (how !== 'serverZombie') server.die();
    if (this.#server !== server) return;
    this.#server = undefined;
    this.queue.after(500 + this.random() * 30_000, () => {
      if (this.#server !== undefined) return;
      if (how === 'serverRestoreOld' && this.store.restore()) {
        this.wasRestored = true;
        this.checks.restored();
      }
      if (how === 'serverLostState') {
        this.store.lose();
        this.wasRestored = true;
        this.checks.restored();
      }
      this.#server = new Server(this);
      if (how === 'serverRestoreOld') this.#operator.afterRestore();
    });
  }

  /** Whether the server dies at this point of carrying out a plan. */
  crashesMidway(): boolean {
    return this.#midway && this.random() < 0.3;
  }

  stepWall(byMs: number): void {
    this.#wallOffsetMs += byMs;
    this.checks.clockStepped();
  }

  // -------------------------------------------------------------- machines and engines

  machine(id: string): Machine {
    const machine = this.machines.get(id);
    if (machine === undefined) throw new Error(`no machine ${id}`);
    return machine;
  }

  someMachine(): Machine {
    const all = [...this.machines.values()];
    return all[Math.floor(this.random() * all.length)] as Machine;
  }

  mend(machine: Machine): void {
    Object.assign(machine, { upCut: false, downCut: false, dataCut: false });
    this.agents.get(machine.id)?.session?.flush();
  }

  thaw(agent: Agent): void {
    agent.frozen = false;
    agent.session?.flush();
    if (agent.running && agent.machine.up && agent.session === undefined) agent.dial(100);
    if (!agent.running && this.#calm) agent.start();
  }

  powerOff(machine: Machine): void {
    if (!machine.up) return;
    const ended = machine.live();
    machine.losePower();
    for (const process of ended) {
      this.listening()?.router.processEnded(process);
      breakGang(this, process);
    }
    const agent = this.agents.get(machine.id);
    if (agent === undefined) return;
    agent.running = false;
    // No FIN leaves a machine without power: the server must find out by silence.
    machine.upCut = machine.downCut = machine.dataCut = true;
  }

  powerOn(machine: Machine): void {
    if (machine.up) return;
    machine.up = true;
    this.mend(machine);
    this.agents.get(machine.id)?.session?.reset();
    this.agents.get(machine.id)?.start();
  }

  hitEngine(machine: Machine, how: 'engineCrash' | 'engineKilled' | 'engineHang'): void {
    const agent = this.agents.get(machine.id);
    const victims = machine.live().filter(({ state }) => state === 'ready' || state === 'loading');
    const process = victims[Math.floor(this.random() * victims.length)];
    if (agent === undefined || process === undefined) return;
    if (how === 'engineHang') {
      if (process.state === 'ready') process.state = 'hung';
      breakGang(this, process);
    } else if (how === 'engineKilled')
      this.kill(agent, process, { verdict: 'signalled', exitSignal: 'SIGKILL' });
    else this.kill(agent, process, { verdict: this.random() < 0.3 ? 'outOfMemory' : 'crashed', exitCode: 1 });
  }

  kill(agent: Agent, process: Process, exit: NonNullable<Process['exit']>): void {
    if (process.state === 'dead') return;
    process.state = 'dead';
    process.exit = exit;
    breakGang(this, process);
    this.truthChanged();
    this.listening()?.router.processEnded(process);
    this.release(process, agent.machine);
  }

  /** The memory of a dead process may take a while to come back. */
  release(process: Process, machine: Machine): void {
    this.listening()?.router.processEnded(process);
    const afterMs = this.chance(this.dice.slowRelease) ? 1_000 + this.random() * 8_000 : 0;
    this.queue.after(afterMs, () => {
      process.holdsGpus = false;
      if (machine.up) this.agents.get(machine.id)?.changed();
    });
  }

  /** An engine gets its TERM: nobody may still be talking through our router. */
  stopping(process: Process): void {
    const server = this.listening();
    const key = replicaKey(process.replicaId, process.generation);
    if (server !== undefined && server.router.openTo(process) > 0 && server.router.publishes(key))
      this.fail('cut_streams', `${process.key} gets TERM while published`);
  }

  /** What an agent finds before it spawns. The same place and profile always give the same answer, until the profile changes. */
  refusalOf(machine: Machine, command: StartShardCommand): Verdict | undefined {
    const { dice } = this;
    const draw = hash(`${machine.id}/${command.model}/${command.specDigest}`);
    if (draw < dice.permanent) return draw < dice.permanent / 2 ? 'binaryMissing' : 'badFlag';
    if (machine.portsGrabbed.has(command.ports.http) || this.chance(dice.portTaken)) return 'portTaken';
    return undefined;
  }

  /** Some hangs an agent sees by itself, others only the data path can tell. */
  noticesHang(process: Process): boolean {
    const known = this.#noticed.get(process);
    if (known !== undefined) return known;
    // Of a rank that serves no HTTP an agent only sees that it runs.
    const notices = process.rank === 0 && this.random() < 0.5;
    this.#noticed.set(process, notices);
    return notices;
  }
}

/** Time the cluster has to become quiet, and how long it must stay so. */
const CALM_MS = 40 * 60_000;
const QUIET_MS = 4 * 60_000;

const PEACE = {
  duplicate: 0,
  dropReport: 0,
  incompleteReport: 0,
  crashAtStart: 0,
  doomed: [],
  portTaken: 0,
  slowRelease: 0,
  earlyReady: 0,
} as const;

function describe(
  actions: readonly { readonly kind: string; readonly reason: { readonly code: string } }[],
): string {
  return actions.map(({ kind, reason }) => `${kind} ${reason.code}`).join(', ') || 'none in the last plan';
}

/** 0..1 from a text. */
function hash(text: string): number {
  let value = 0x811c9dc5;
  for (let index = 0; index < text.length; index += 1)
    value = Math.imul(value ^ text.charCodeAt(index), 0x01000193);
  return (value >>> 0) / 4_294_967_296;
}
