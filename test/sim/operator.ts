/** Operators and everything else that happens to a cluster from outside: what they do, and what breaks. */
import type { SchedulingIntent } from '../../src/domain/cluster.js';
import type { ModelSpec, Profile } from '../../src/domain/model-spec.js';
import { aModel, aProfile, GIB } from '../support/cluster-builder.js';
import { breakGangsOn } from './gangs.js';
import { ACTIONS, type Fault, type OperatorAction } from './dice.js';
import { isContested, reloadedPolicy, themedModel } from './themes.js';
import type { World } from './world.js';

/** A model with a launch profile of some shape. */
export function drawModel(world: World, name: string): ModelSpec {
  const { random } = world;
  const pick = <T>(items: readonly T[]): T => items[Math.floor(random() * items.length)] as T;
  const profile = (index: number): Profile => {
    const shards = pick([1, 1, 1, 1, 2, 3]);
    const gpus = pick([0, 1, 1, 1, 2]);
    const memory = random() < 0.4 ? Math.floor((10 + random() * 50) * GIB) : undefined;
    return aProfile({
      name: `p${index}`,
      engine: pick(['sim', 'sim', 'sim', 'vllm']),
      shards,
      gpus,
      stopGraceMs: 5_000,
      ...(memory === undefined || gpus === 0 ? {} : { gpuMemoryBytes: memory }),
      ...(random() < 0.3 ? { gpuType: pick(['A*', 'B', 'nvidia/A']) } : {}),
    });
  };
  const drawn = aModel({
    name,
    replicas: pick([0, 1, 1, 2, 3]),
    priority: pick([100, 100, 50, 200]),
    source: `repo/${name}`,
    profiles: random() < 0.3 ? [profile(0), profile(1)] : [profile(0)],
    onNoSurge: pick(['wait', 'wait', 'swap']),
    placement: {
      strategy: pick(['pack', 'spread']),
      antiAffinity: random() < 0.15,
      ...(random() < 0.2 ? { spreadBy: 'rack' } : {}),
    },
  });
  return themedModel(world.theme, drawn, random);
}

export class Operator {
  #sequence = 0;
  /** The catalog before the last change of it. */
  #former: World['models'] = [];

  constructor(private readonly world: World) {}

  act(kind: OperatorAction): void {
    const { world } = this;
    const node = this.#someNode();
    const { models } = world;
    this.#act(kind, node);
    if (world.models !== models) this.#former = models;
  }

  #act(kind: OperatorAction, node: string): void {
    const { world } = this;
    world.say(() => `operator: ${kind} ${node}`);
    switch (kind) {
      case 'scale':
        return this.#changeModel((model) => ({ ...model, replicas: Math.floor(world.random() * 5) }));
      case 'cordon':
        return this.#intent(node, { target: 'cordoned' });
      case 'uncordon':
        return this.#intent(node, { target: 'schedulable' });
      case 'drain':
        this.#intent(node, { target: 'drained', ...this.#drainOptions() });
        // A change of mind, in whatever phase it then is.
        if (world.random() < 0.4)
          world.queue.after(world.random() * 15_000, () => this.#intent(node, { target: 'schedulable' }));
        return;
      case 'drainGpu': {
        const device = world.machines.get(node)?.devices[0];
        if (device === undefined) return;
        return this.#intent(node, { target: 'drained', gpuUuid: device.uuid, ...this.#drainOptions() });
      }
      case 'changeArgs':
        return this.#changeModel((model) => ({
          ...model,
          profiles: model.profiles.map((profile) => ({
            ...profile,
            args: [`--x=${Math.floor(world.random() * 3)}`],
          })),
        }));
      case 'restartModel':
        return this.#changeModel(({ restartAllowsGap: _gap, ...model }) => ({
          ...model,
          restartedWallMs: world.wallMs,
        }));
      case 'restartWithGap':
        return this.#changeModel((model) => ({
          ...model,
          restartedWallMs: world.wallMs,
          restartAllowsGap: true,
        }));
      case 'reload':
        world.policy = reloadedPolicy(world.policy, world.random);
        return;
      case 'restartAll':
        world.models = world.models.map((model) => ({ ...model, restartedWallMs: world.wallMs }));
        return;
      case 'removeModel':
        if (world.models.length > 1) world.models = world.models.slice(1);
        return;
      case 'addModel':
        if (world.models.length < 4)
          world.models = [
            ...world.models,
            drawModel(world, `m${world.models.length}x${Math.floor(world.random() * 9)}`),
          ].filter(uniqueName);
        return;
      case 'removeNode':
        return this.#removeLost();
      case 'refit':
        return this.#changeModel((model) => drawModel(world, model.name));
      case 'revert':
        // In the middle of whatever the change began.
        if (this.#former.length > 0) world.models = this.#former;
        return;
      case 'restartReplica':
      case 'restartReplicaWithGap': {
        const ids = [...world.store.contents.replicas.keys()];
        const id = ids[Math.floor(world.random() * ids.length)];
        if (id !== undefined) world.listening()?.restartReplica(id, kind === 'restartReplicaWithGap');
        return;
      }
    }
  }

  some(): OperatorAction | undefined {
    const { actions } = this.world.dice;
    if (isContested(this.world.theme) && this.world.random() < 0.5) return 'scale';
    return actions[Math.floor(this.world.random() * actions.length)] ?? ACTIONS[1];
  }

  /**
   * A store that was set back has forgotten engines; when their model has left the catalog, too, nobody takes them over. Whoever
   * empties their machine now must be told of them.
   */
  afterRestore(): void {
    const { world } = this;
    if (world.theme !== 'drains') return;
    const known = world.store.contents.replicas;
    const forgotten = [...world.machines.values()].flatMap((machine) =>
      machine
        .live()
        .filter(({ replicaId }) => !known.has(replicaId))
        .map(({ model }) => ({ model, node: machine.id })),
    );
    const one = forgotten[Math.floor(world.random() * forgotten.length)];
    if (one === undefined) return;
    world.count('restored without records');
    if (world.models.length > 1) world.models = world.models.filter(({ name }) => name !== one.model);
    const nodes = new Set(forgotten.filter(({ model }) => model === one.model).map(({ node }) => node));
    for (const node of nodes)
      world.queue.after(world.random() * 10_000, () =>
        this.#intent(node, { target: 'drained', ...this.#drainOptions() }),
      );
  }

  #drainOptions(): Partial<SchedulingIntent> {
    const { random, theme } = this.world;
    if (theme === 'drains')
      return {
        ...(random() < 0.3 ? { allowGap: true } : {}),
        ...(random() < 0.6 ? { deadlineMs: 5_000 + Math.floor(random() * 60_000) } : {}),
        ...(random() < 0.5 ? { streamGraceMs: Math.floor(random() * 150_000) } : {}),
      };
    return {
      ...(random() < 0.4 ? { allowGap: true } : {}),
      ...(random() < 0.3 ? { deadlineMs: 30_000 + Math.floor(random() * 90_000) } : {}),
      ...(random() < 0.3 ? { streamGraceMs: Math.floor(random() * 60_000) } : {}),
    };
  }

  #someNode(): string {
    const all = [...this.world.machines.values()];
    const busy = all.filter((machine) => machine.live().length > 0);
    const ids = (this.world.theme === 'drains' && busy.length > 0 ? busy : all).map(({ id }) => id);
    return ids[Math.floor(this.world.random() * ids.length)] ?? '';
  }

  #intent(nodeId: string, change: Partial<SchedulingIntent> & Pick<SchedulingIntent, 'target'>): void {
    const server = this.world.listening();
    if (server === undefined || !server.entries.has(nodeId)) return;
    this.#sequence += 1;
    server.setIntent(nodeId, {
      actor: 'ann',
      atWallMs: this.world.wallMs,
      sequence: this.#sequence,
      ...change,
    });
  }

  #changeModel(change: (model: ModelSpec) => ModelSpec): void {
    const { world } = this;
    const index = Math.floor(world.random() * world.models.length);
    world.models = world.models.map((model, at) => (at === index ? change(model) : model));
  }

  /** Only a node that was given up and is really without power: removing a live one is another fault than ours. */
  #removeLost(): void {
    const server = this.world.listening();
    const lost = server
      ?.nodes()
      .find((node) => node.liveness === 'lost' && this.world.machines.get(node.id)?.up === false);
    if (lost !== undefined) server?.removeNode(lost.id);
  }
}

function uniqueName(model: ModelSpec, index: number, all: readonly ModelSpec[]): boolean {
  return all.findIndex(({ name }) => name === model.name) === index;
}

/** Lets one fault happen; each ends by itself after a while. */
export function strike(world: World, fault: Fault): void {
  const machine = world.someMachine();
  const agent = world.agents.get(machine.id);
  const forMs = 1_000 + world.random() * world.random() * 120_000;
  world.say(() => `fault ${fault} on ${machine.id} for ${Math.round(forMs)} ms`);
  const later = (undo: () => void) => world.queue.after(forMs, undo);
  const cut = (change: Partial<Pick<typeof machine, 'upCut' | 'downCut' | 'dataCut' | 'extraLatencyMs'>>) => {
    Object.assign(machine, change);
    if (change.dataCut === true) breakGangsOn(world, machine);
    later(() => world.mend(machine));
  };
  switch (fault) {
    case 'sessionDrop':
      return agent?.session?.reset();
    case 'partition':
      return cut({ upCut: true, downCut: true, dataCut: world.random() < 0.5 });
    case 'oneWayUp':
      return cut({ upCut: true });
    case 'oneWayDown':
      return cut({ downCut: true });
    case 'dataCut':
      return cut({ dataCut: true });
    case 'clog':
      return swizzle(world);
    case 'massSilence':
      for (const one of world.machines.values()) {
        if (world.random() < 0.25) continue;
        one.upCut = true;
        later(() => world.mend(one));
      }
      return;
    case 'agentRestart':
      return agent?.restart(500 + world.random() * 20_000);
    case 'agentFreeze':
      if (agent === undefined) return;
      agent.frozen = true;
      return later(() => world.thaw(agent));
    case 'reboot':
    case 'powerLoss':
      world.powerOff(machine);
      return world.queue.after(fault === 'reboot' ? 10_000 : forMs, () => world.powerOn(machine));
    case 'engineCrash':
    case 'engineKilled':
    case 'engineHang':
      return world.hitEngine(machine, fault);
    case 'gpuFlip': {
      const device = machine.devices[0];
      if (device === undefined) return;
      const state = world.random() < 0.5 ? 'excluded' : 'suspect';
      device.health = { state, reason: 'xid_48', evidence: 'simulated' };
      agent?.changed();
      return later(() => {
        device.health = { state: 'healthy' };
        agent?.changed();
      });
    }
    case 'gpuLost': {
      const device = machine.devices.at(-1);
      if (device === undefined) return;
      device.present = false;
      agent?.changed();
      for (const process of machine.holders(device.uuid))
        if (agent !== undefined && world.random() < 0.7)
          world.kill(agent, process, { verdict: 'xid', exitCode: 134 });
      return later(() => {
        device.present = true;
        agent?.changed();
      });
    }
    case 'foreignProcess': {
      const device = machine.devices[0];
      if (device === undefined) return;
      device.foreignBytes = Math.floor(world.random() * device.memoryTotalBytes * 0.5);
      agent?.changed();
      return world.queue.after(60_000 + forMs, () => {
        device.foreignBytes = 0;
      });
    }
    case 'portGrab': {
      const [first, last] = world.policy.portRange;
      const port = first + Math.floor(world.random() * (last - first + 1));
      if (machine.live().some((process) => process.port === port)) return;
      machine.portsGrabbed.add(port);
      return later(() => machine.portsGrabbed.delete(port));
    }
    case 'serverRestart':
    case 'serverCrashMidway':
    case 'serverRestoreOld':
    case 'serverLostState':
    case 'serverZombie': {
      const server = world.listening();
      return server === undefined ? undefined : world.restartServer(server, fault);
    }
    case 'serverStall':
      return world.listening()?.stall(5_000 + world.random() * 60_000);
    case 'wallStep':
      return world.stepWall((world.random() - 0.5) * 7_200_000);
    case 'flap':
      for (let index = 0; index < 6; index += 1)
        world.queue.after(index * 12_000, () => agent?.session?.reset());
      return;
  }
}

/** Clogs nodes one after another, then frees them in another order: every mixture of slow and quick occurs. */
function swizzle(world: World): void {
  const machines = [...world.machines.values()].filter(() => world.random() < 0.6);
  for (const [index, machine] of machines.entries())
    world.queue.after(index * 3_000, () => {
      machine.extraLatencyMs = 2_000 + world.random() * 10_000;
    });
  for (const machine of machines)
    world.queue.after(machines.length * 3_000 + world.random() * 30_000, () => {
      machine.extraLatencyMs = 0;
    });
}
