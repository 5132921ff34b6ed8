/**
 * Engines over several machines. Each rank reads its weights by itself; rank 0 answers when all have, and only then. When one is
 * gone the others do not notice: rank 0 keeps its port open and hangs, the rest runs on. Ending them is what the control plane is for.
 */
import type { Machine, Process } from './machine.js';
import type { World } from './world.js';

/** The other ranks of the same start, wherever they still run. */
function othersOf(world: World, process: Process): readonly Process[] {
  if (process.shards === 1) return [];
  return [...world.machines.values()].flatMap((machine) =>
    machine
      .live()
      .filter(
        (one) =>
          one !== process &&
          one.replicaId === process.replicaId &&
          one.generation === process.generation &&
          one.rank !== process.rank,
      ),
  );
}

/** A rank has read its weights; the last of them makes the gang answer. */
export function rankLoaded(world: World, process: Process): void {
  process.loaded = true;
  const gang = [process, ...othersOf(world, process)];
  const ranks = new Set(
    gang.filter(({ loaded, state }) => loaded && state === 'loading').map(({ rank }) => rank),
  );
  if (ranks.size < process.shards) return;
  for (const one of gang) if (one.state === 'loading') one.state = 'ready';
}

/** A rank is gone, or can no longer be reached: what was a gang hangs. */
export function breakGang(world: World, process: Process): void {
  for (const one of othersOf(world, process)) if (one.state === 'ready') one.state = 'hung';
}

/** The ways between this machine and the others are cut, long enough for every collective to time out. */
export function breakGangsOn(world: World, machine: Machine): void {
  for (const process of machine.live()) {
    if (process.shards === 1) continue;
    if (process.state === 'ready') process.state = 'hung';
    breakGang(world, process);
  }
}
