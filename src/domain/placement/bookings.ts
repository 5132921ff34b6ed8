/**
 * Who holds what: GPUs, their memory and ports, per node. Built once per pass from the records and the reports together,
 * because each knows something the other does not: a record holds a place before any report shows it, a report shows a leftover
 * whose record is gone. Written to as places are decided within the pass, so that two decisions never see the same hole.
 */
import type { GpuReport, NodeView, ShardAssignment } from '../cluster.js';

/** One holder of a device. */
export interface GpuHolder {
  readonly shardId: string;
  readonly model: string;
  /** Booked bytes; undefined = the whole device. */
  readonly memoryBytes?: number;
}

/** Everything held on one node. */
export interface NodeBookings {
  readonly gpus: Map<string, GpuHolder[]>;
  readonly ports: Set<number>;
  /** Live shards per model, for anti-affinity and spreading. */
  readonly models: Map<string, number>;
  /** Live shards that use no GPU: CPU work has no size we know, so it is balanced by count. */
  cpuShards: number;
  /** Grows with every booking here: what was worked out at one revision holds for as long as it stands. */
  revision: number;
}

const empty = (): NodeBookings => ({
  gpus: new Map(),
  ports: new Set(),
  models: new Map(),
  cpuShards: 0,
  revision: 0,
});

const NOTHING: NodeBookings = empty();

/** Devices that more than one node reports, each with these nodes. */
export type SharedDevices = ReadonlyMap<string, readonly string[]>;

const NOTHING_SHARED: SharedDevices = new Map();

/**
 * Two agents on one machine, or one that came back under another node id, report the same devices: what one node holds is then
 * held on the other too. Declared devices are named by whoever declared them, so an equal name says nothing there.
 */
export function sharedDevices(nodes: readonly Pick<NodeView, 'id' | 'gpus'>[]): SharedDevices {
  const first = new Map<string, string>();
  const shared = new Map<string, string[]>();
  for (const { id, gpus } of nodes)
    for (const { uuid, vendor } of gpus) {
      if (vendor === 'static') continue;
      const other = first.get(uuid);
      if (other === undefined) first.set(uuid, id);
      else shared.set(uuid, [...(shared.get(uuid) ?? [other]), id]);
    }
  return shared;
}

export class Bookings {
  readonly #nodes = new Map<string, NodeBookings>();
  readonly #shared: SharedDevices;
  /** Pages that may be written to; undefined = all. */
  #own: ReadonlySet<string> | undefined;

  constructor(shared: SharedDevices = NOTHING_SHARED) {
    this.#shared = shared;
  }

  /** What is held on a node; never to be written to by callers. */
  on(nodeId: string): NodeBookings {
    return this.#nodes.get(nodeId) ?? NOTHING;
  }

  /** Holds a shard's GPUs and ports. Booking the same shard on the same device twice is a no-op. */
  book(
    model: string,
    shard: Pick<ShardAssignment, 'shardId' | 'nodeId' | 'gpuUuids' | 'gpuMemoryBytes' | 'ports'>,
  ): void {
    const node = this.#node(shard.nodeId);
    node.revision += 1;
    for (const uuid of shard.gpuUuids) {
      this.#bookGpu(node, uuid, model, shard);
      for (const twin of this.#twins(uuid, shard.nodeId)) this.#bookGpu(twin, uuid, model, shard);
    }
    if (shard.gpuUuids.length === 0) node.cpuShards += 1;
    if (shard.ports.http > 0) node.ports.add(shard.ports.http);
    if (shard.ports.rendezvous !== undefined) node.ports.add(shard.ports.rendezvous);
    node.models.set(model, (node.models.get(model) ?? 0) + 1);
  }

  /** Gives back what `book` held. */
  release(model: string, shard: Pick<ShardAssignment, 'shardId' | 'nodeId' | 'gpuUuids' | 'ports'>): void {
    const node = this.#node(shard.nodeId);
    node.revision += 1;
    for (const uuid of shard.gpuUuids)
      for (const page of [node, ...this.#twins(uuid, shard.nodeId)])
        page.gpus.set(
          uuid,
          holdersOf(page, uuid).filter((holder) => holder.shardId !== shard.shardId),
        );
    if (shard.gpuUuids.length === 0) node.cpuShards -= 1;
    node.ports.delete(shard.ports.http);
    if (shard.ports.rendezvous !== undefined) node.ports.delete(shard.ports.rendezvous);
    node.models.set(model, (node.models.get(model) ?? 0) - 1);
  }

  /** What is held on some nodes, those in `own` on pages that may be written to: for asking what would be if something were gone. */
  excerpt(nodeIds: Iterable<string>, own: ReadonlySet<string>): Bookings {
    const copy = new Bookings(this.#shared);
    copy.#own = own;
    for (const id of nodeIds) {
      const node = this.#nodes.get(id);
      if (node === undefined) continue;
      if (!own.has(id)) {
        copy.#nodes.set(id, node);
        continue;
      }
      copy.#nodes.set(id, {
        ...node,
        gpus: new Map([...node.gpus].map(([uuid, holders]) => [uuid, [...holders]])),
        ports: new Set(node.ports),
        models: new Map(node.models),
      });
    }
    return copy;
  }

  #bookGpu(
    node: NodeBookings,
    uuid: string,
    model: string,
    shard: Pick<ShardAssignment, 'shardId' | 'gpuMemoryBytes'>,
  ): void {
    const holders = node.gpus.get(uuid);
    if (holders?.some((holder) => holder.shardId === shard.shardId) === true) return;
    const { shardId, gpuMemoryBytes: memoryBytes } = shard;
    const holder = memoryBytes === undefined ? { shardId, model } : { shardId, model, memoryBytes };
    if (holders === undefined) node.gpus.set(uuid, [holder]);
    else holders.push(holder);
  }

  /** The pages of the other nodes that report the device. */
  #twins(uuid: string, nodeId: string): readonly NodeBookings[] {
    const nodes = this.#shared.get(uuid);
    if (nodes === undefined) return NO_PAGES;
    return nodes
      .filter((id) => id !== nodeId && this.#own?.has(id) !== false)
      .map((id) => {
        const page = this.#node(id);
        page.revision += 1;
        return page;
      });
  }

  #node(nodeId: string): NodeBookings {
    const known = this.#nodes.get(nodeId);
    if (known !== undefined) return known;
    const fresh = empty();
    this.#nodes.set(nodeId, fresh);
    return fresh;
  }
}

const NO_PAGES: readonly NodeBookings[] = [];
const NO_HOLDERS: readonly GpuHolder[] = [];

/** Shards of ours that hold the device. */
export function holdersOf(bookings: NodeBookings, uuid: string): readonly GpuHolder[] {
  return bookings.gpus.get(uuid) ?? NO_HOLDERS;
}

/**
 * Memory still free for a new shard, bytes; undefined while it cannot be known. Bookings count in full even while their engines
 * have not yet taken the memory, and what is really used counts when it is more than was booked.
 */
export function freeMemoryBytes(gpu: GpuReport, holders: readonly GpuHolder[]): number | undefined {
  const used = usedBytes(gpu);
  if (gpu.memoryTotalBytes === undefined || used === undefined) return undefined;
  let booked = 0;
  for (const holder of holders) {
    if (holder.memoryBytes === undefined) return 0;
    booked += holder.memoryBytes;
  }
  const taken = Math.max(used, booked + foreignBytes(gpu));
  return Math.max(0, gpu.memoryTotalBytes - taken);
}

/** A declared (static) device has nobody who could measure it: only bookings count there. */
function usedBytes(gpu: GpuReport): number | undefined {
  return gpu.memoryUsedBytes ?? (gpu.vendor === 'static' ? 0 : undefined);
}

/** Memory of processes that are none of ours. One of unknown size could be all that is in use, so it counts as that. */
function foreignBytes(gpu: GpuReport): number {
  let known = 0;
  for (const process of gpu.foreign) {
    if (process.memoryBytes === undefined) return gpu.memoryUsedBytes ?? 0;
    known += process.memoryBytes;
  }
  return known;
}
