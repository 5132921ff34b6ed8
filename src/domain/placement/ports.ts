/**
 * Ports are chosen here, never by the engine or the kernel: two shards can then not race for one, and the router knows the
 * address before the engine runs. The search starts at a place that depends on the replica and its generation, so that a port just
 * given up by one model is not the first choice of the next one: a request sent late would reach the wrong engine.
 */
import type { NodeView, ShardPorts } from '../cluster.js';
import type { NodeBookings } from './bookings.js';

/** Whether a node has `count` free ports in the range. */
export function hasFreePorts(
  node: NodeView,
  bookings: NodeBookings,
  range: readonly [number, number],
  count: number,
): boolean {
  const size = range[1] - range[0] + 1;
  // Far from full in nearly every case: no need to look at single ports.
  if (node.portsTaken.length + bookings.ports.size + count <= size) return true;
  return freePorts(node, bookings, range) >= count;
}

/** Number of free ports of the range on a node. */
export function freePorts(node: NodeView, bookings: NodeBookings, range: readonly [number, number]): number {
  const taken = new Set<number>();
  for (const port of node.portsTaken) if (inRange(port, range)) taken.add(port);
  for (const port of bookings.ports) if (inRange(port, range)) taken.add(port);
  return Math.max(0, range[1] - range[0] + 1 - taken.size);
}

/** More than the two ports one generation takes, so that the next one starts beyond them. */
const GENERATION_STRIDE = 3;

/** A node on which ports are wanted. */
export interface PortSite {
  readonly node: NodeView;
  readonly bookings: NodeBookings;
}

/**
 * Ports for each shard of a replica, in rank order; undefined when some node has none left. A gang's rendezvous port is free on
 * all of its nodes, and differs from that of the generation before, whose dying ranks may still hold it.
 */
export function choosePorts(
  sites: readonly PortSite[],
  range: readonly [number, number],
  replicaId: string,
  generation: number,
): readonly ShardPorts[] | undefined {
  const start = hash(replicaId) + generation * GENERATION_STRIDE;
  const rendezvous =
    sites.length > 1 ? findPort(range, start, (port) => sites.every((site) => free(site, port))) : 0;
  if (rendezvous === undefined) return undefined;
  const ports: ShardPorts[] = [];
  for (const site of sites) {
    const http = findPort(range, start + 1, (port) => port !== rendezvous && free(site, port));
    if (http === undefined) return undefined;
    ports.push(sites.length > 1 ? { http, rendezvous } : { http });
  }
  return ports;
}

function free({ node, bookings }: PortSite, port: number): boolean {
  return !bookings.ports.has(port) && !node.portsTaken.includes(port);
}

function findPort(
  range: readonly [number, number],
  start: number,
  isFree: (port: number) => boolean,
): number | undefined {
  const size = range[1] - range[0] + 1;
  for (let offset = 0; offset < size; offset += 1) {
    const port = range[0] + ((start + offset) % size);
    if (isFree(port)) return port;
  }
  return undefined;
}

function inRange(port: number, range: readonly [number, number]): boolean {
  return port >= range[0] && port <= range[1];
}

function hash(text: string): number {
  let value = 0x811c9dc5;
  for (let index = 0; index < text.length; index += 1)
    value = Math.imul(value ^ text.charCodeAt(index), 0x01000193);
  return value >>> 0;
}
