/** Will engines get the ports that the control plane gives them on this machine? */
import { ok, warning, type Finding } from './finding.js';
import { MARKER_SHARD } from './marker.js';
import type { ProcessTable } from './process-table.js';

type Range = readonly [first: number, last: number];

export interface PortDeps {
  readonly processes: ProcessTable;
  /** Reads a file of the system; undefined when there is none. */
  readonly readFile: (path: string) => string | undefined;
  /** Ports somebody listens on. */
  readonly listening: () => readonly number[];
  /** Who listens there; undefined when it is nobody this user may look at. */
  readonly listenerOf: (port: number) => number | undefined;
}

/** The server's own default; its file may say otherwise, and tells so when the agent connects. */
const DEFAULT_RANGE: Range = [20_000, 20_999];

/** `told` is what the server last told this agent; undefined when the two have not met. */
export function checkPorts(told: Range | undefined, deps: PortDeps): Finding[] {
  const [first, last] = told ?? DEFAULT_RANGE;
  const whose =
    told === undefined ? "the server's default, until this agent has met it" : 'as the server says';
  const outgoing = numbers(deps.readFile('/proc/sys/net/ipv4/ip_local_port_range'));
  const [from = Number.POSITIVE_INFINITY, to = 0] = outgoing;
  const taken = checkTaken([first, last], deps);
  const overlap: Range = [Math.max(first, from), Math.min(last, to)];
  if (overlap[0] > overlap[1] || isReserved(overlap, deps))
    return [
      ok('ports', `engines get ${first} to ${last} (${whose}), which outgoing connections leave alone`),
      ...taken,
    ];
  return [
    warning(
      'ports',
      `outgoing connections use ${from} to ${to}, which takes ports of engines (${first} to ${last}, ${whose}) by chance`,
      `sysctl net.ipv4.ip_local_reserved_ports=${first}-${last}`,
    ),
    ...taken,
  ];
}

/** True when the kernel gives none of these to outgoing connections: a list such as `8080,20000-20999`. */
function isReserved([first, last]: Range, deps: PortDeps): boolean {
  const text = deps.readFile('/proc/sys/net/ipv4/ip_local_reserved_ports')?.trim() ?? '';
  const ranges = text.split(',').map((entry) => numbers(entry.replace('-', ' ')));
  let next = first;
  for (const [from = 0, to = from] of ranges.toSorted(([a = 0], [b = 0]) => a - b))
    if (from <= next && to >= next) next = to + 1;
  return next > last;
}

const numbers = (text: string | undefined): number[] => text?.trim().split(/\s+/).map(Number) ?? [];

const HOLDERS_NAMED = 5;

/** Ports of the engines that somebody else listens on; engines of an agent carry its marker. */
function checkTaken([first, last]: Range, deps: PortDeps): Finding[] {
  const { processes } = deps;
  const strangers = deps
    .listening()
    .filter((port) => port >= first && port <= last)
    .map((port) => ({ port, pid: deps.listenerOf(port) }))
    .filter(({ pid }) => pid === undefined || processes.environment(pid)?.has(MARKER_SHARD) !== true);
  if (strangers.length === 0) return [];
  const named = strangers
    .slice(0, HOLDERS_NAMED)
    .map(({ port, pid }) =>
      pid === undefined
        ? `${port} (by another user)`
        : `${port} (by ${processes.name(pid) ?? '?'}, pid ${pid})`,
    );
  const more = strangers.length - named.length;
  const message = `ports of engines are taken: ${named.join(', ')}${more > 0 ? ` and ${more} more` : ''}`;
  return [
    warning('ports', message, "the others are used; or set control.portRange in the server's file elsewhere"),
  ];
}
