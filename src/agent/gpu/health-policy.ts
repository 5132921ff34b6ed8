/**
 * Decides from one probe after another which GPUs new work may use. Hard evidence excludes at once; what is cleared must
 * stay clear for a while before the device is used again, so that a flapping device does not swing its replicas about.
 * Pure: memory in, memory out.
 */
import type { GpuHealth } from '../../domain/cluster.js';
import type { GpuObservation, GpuProbe, GpuSigns, XidEvent } from './driver.js';
import { normalBusId } from './kernel-log.js';
import { recoveryInXid154, xidClass } from './xid-classes.js';

/** What must happen before a finding no longer counts. */
export type Cure =
  /** The sign itself goes away. */
  | 'sign'
  /** A reset of the device: its driver must say that none is needed any more. */
  | 'reset'
  /** A reboot of the machine. */
  | 'reboot'
  /** Nothing but time without another. */
  | 'quiet';

export interface Finding {
  /** Code, e.g. `xid_79`. */
  readonly reason: string;
  readonly state: 'suspect' | 'excluded';
  readonly evidence: string;
  readonly cure: Cure;
}

/** A finding of this probe; the kernel's log also tells of what happened before this agent started. */
type Fresh = Finding & { readonly ageMs?: number };

/** A finding in force. */
export interface Held extends Finding {
  readonly sinceWallMs: number;
  readonly bootId?: string;
  /** Last time the evidence was there, monotonic ms. */
  readonly seenMs: number;
}

/** What is remembered of one device between probes. */
export interface GpuMemory {
  /** The device as it was last seen. */
  readonly last: Pick<GpuObservation, 'uuid' | 'type' | 'vendor' | 'busId' | 'memoryTotalBytes'>;
  readonly health: GpuHealth;
  readonly held: readonly Held[];
  readonly signs: GpuSigns;
  /** Monotonic times of application faults; bounded. */
  readonly faultsMs: readonly number[];
  readonly hotProbes: number;
}

export interface AssessTime {
  readonly monotonicMs: number;
  readonly wallMs: number;
  readonly bootId?: string;
}

/** How long a device must be clean before it is used again. */
const CLEAN_MS = { excluded: 300_000, suspect: 120_000, notReported: 60_000 } as const;
/** Application faults on one device within this time that make it suspect. */
const FAULTS = { count: 5, withinMs: 600_000 } as const;
/** Thermal slowdown in this many probes in a row. */
const HOT_PROBES = 3;
/** A device that was taken out is forgotten after this long; wall time, since it outlives the agent. */
const FORGET_MS = 7 * 24 * 3_600_000;

const CURE_TEXT: Readonly<Record<Cure, string>> = {
  sign: 'the sign going away and staying away',
  reset: 'a GPU reset, then a clean while; or a reboot',
  reboot: 'a reboot; if it comes back, the device needs service',
  quiet: 'a while without another',
};

export const NEW_MEMORY: Omit<GpuMemory, 'last'> = {
  health: { state: 'healthy' },
  held: [],
  signs: {},
  faultsMs: [],
  hotProbes: 0,
};

export function assess(
  memory: ReadonlyMap<string, GpuMemory>,
  probe: GpuProbe,
  now: AssessTime,
): Map<string, GpuMemory> {
  const next = new Map<string, GpuMemory>();
  for (const gpu of probe.gpus) {
    const before = memory.get(gpu.uuid);
    const xids = (probe.xids ?? []).filter((event) => isOn(event, gpu.busId ?? before?.last.busId));
    next.set(gpu.uuid, assessOne(before, gpu, xids, now));
  }
  for (const [uuid, before] of memory) {
    if (next.has(uuid)) continue;
    const xids = (probe.xids ?? []).filter((event) => isOn(event, before.last.busId));
    const missing = assessMissing(before, xids, now);
    if (missing !== undefined) next.set(uuid, missing);
  }
  return next;
}

function isOn(event: XidEvent, busId: string | undefined): boolean {
  return busId !== undefined && event.busId === normalBusId(busId);
}

function assessOne(
  before: GpuMemory | undefined,
  gpu: GpuObservation,
  xids: readonly XidEvent[],
  now: AssessTime,
): GpuMemory {
  const faults = xids
    .filter(({ xid }) => xidClass(xid) === 'application')
    .map(({ ageMs }) => now.monotonicMs - ageMs);
  const memory: GpuMemory = {
    ...(before ?? NEW_MEMORY),
    last: remembered(before?.last, gpu),
    signs: gpu.signs,
    faultsMs: [...(before?.faultsMs ?? []), ...faults]
      .filter((at) => now.monotonicMs - at < FAULTS.withinMs)
      .slice(-FAULTS.count),
    hotProbes: gpu.signs.thermalSlowdown === true ? (before?.hotProbes ?? 0) + 1 : 0,
  };
  const findings = [...signFindings(memory, before), ...xids.flatMap(xidFindings)];
  return withHeld(memory, carry(memory.held, findings, gpu.signs, now));
}

/** A device that cannot be reached has forgotten its name; we have not. */
function remembered(before: GpuMemory['last'] | undefined, gpu: GpuObservation): GpuMemory['last'] {
  if (gpu.signs.lost !== undefined && before !== undefined) return before;
  const { uuid, type, vendor, busId, memoryTotalBytes } = gpu;
  return {
    uuid,
    type,
    vendor,
    ...(busId === undefined ? {} : { busId }),
    ...(memoryTotalBytes === undefined ? {} : { memoryTotalBytes }),
  };
}

/** A device this node had and does not report: kept as excluded, for the shards on it and for whoever asks why. */
function assessMissing(before: GpuMemory, xids: readonly XidEvent[], now: AssessTime): GpuMemory | undefined {
  const finding: Finding = {
    reason: 'not_reported',
    state: 'excluded',
    evidence: `${before.last.uuid} was on this node and is not reported any more`,
    cure: 'sign',
  };
  const held = carry(before.held, [finding, ...xids.flatMap(xidFindings)], {}, now);
  const since = held.find(({ reason }) => reason === 'not_reported')?.sinceWallMs ?? now.wallMs;
  return now.wallMs - since > FORGET_MS ? undefined : withHeld({ ...before, signs: {} }, held);
}

// ---------------------------------------------------------------- findings

function signFindings(memory: GpuMemory, before: GpuMemory | undefined): Finding[] {
  const { signs } = memory;
  const findings: (Finding | undefined)[] = [
    signs.lost === undefined
      ? undefined
      : { reason: 'lost', state: 'excluded', evidence: `nvidia-smi: ${signs.lost}`, cure: 'sign' },
    recoveryFinding(signs.recoveryAction, 'the driver asks for'),
    sign(signs.remapFailure, 'remap_failure', 'excluded', 'a memory row could not be remapped'),
    sign(signs.sramThresholdExceeded, 'sram_threshold', 'excluded', 'too many errors in on-chip memory'),
    sign(signs.unrepairableMemory, 'unrepairable_memory', 'excluded', 'memory that cannot be repaired'),
    sign(
      (signs.inactiveLinks ?? 0) > 0,
      'links_inactive',
      'suspect',
      `${signs.inactiveLinks} links are down`,
    ),
    sign(
      memory.hotProbes >= HOT_PROBES,
      'thermal_slowdown',
      'suspect',
      `slowed down by heat in ${memory.hotProbes} probes in a row`,
    ),
    eccFinding(signs.eccUncorrected, before?.signs.eccUncorrected),
    memory.faultsMs.length >= FAULTS.count
      ? {
          reason: 'xid_repeated',
          state: 'suspect',
          evidence: `${memory.faultsMs.length} application faults within ${FAULTS.withinMs / 60_000} min`,
          cure: 'quiet',
        }
      : undefined,
  ];
  return findings.filter((finding) => finding !== undefined);
}

function sign(
  seen: boolean | undefined,
  reason: string,
  state: Finding['state'],
  evidence: string,
): Finding | undefined {
  return seen === true ? { reason, state, evidence, cure: 'sign' } : undefined;
}

function recoveryFinding(action: string | undefined, who: string): Finding | undefined {
  if (action === undefined || /^none$/i.test(action)) return undefined;
  const finding = (reason: string, state: Finding['state']): Finding => ({
    reason,
    state,
    evidence: `${who} "${action}"`,
    cure: 'sign',
  });
  if (/reboot/i.test(action)) return finding('recovery_reboot', 'excluded');
  if (/reset/i.test(action)) return finding('recovery_reset', 'excluded');
  if (/p2p/i.test(action)) return finding('recovery_drain_p2p', 'suspect');
  return finding('recovery_unknown', 'suspect');
}

/** The counter grows with each fault and starts at zero after a reset; only growth is news. */
function eccFinding(count: number | undefined, before: number | undefined): Finding | undefined {
  if (count === undefined || before === undefined || count <= before) return undefined;
  return {
    reason: 'ecc_uncorrected',
    state: 'suspect',
    evidence: `uncorrectable memory errors went from ${before} to ${count}`,
    cure: 'quiet',
  };
}

function xidFindings({ xid, text, ageMs }: XidEvent): Fresh[] {
  const evidence = `Xid ${xid}${text === '' ? '' : `: ${text}`}`;
  const finding = (state: Finding['state'], cure: Cure): Fresh[] => [
    { reason: `xid_${xid}`, state, evidence, cure, ageMs },
  ];
  switch (xidClass(xid)) {
    case 'application':
    case 'informational':
      return [];
    case 'reset':
      return finding('excluded', 'reset');
    case 'reboot':
      return finding('excluded', 'reboot');
    case 'link':
      return finding('suspect', 'reset');
    case 'doubtful':
      return finding('suspect', 'quiet');
    case 'driverSays': {
      const asked = recoveryFinding(recoveryInXid154(text), 'Xid 154 asks for');
      return asked === undefined
        ? []
        : [{ ...asked, ageMs, cure: asked.reason === 'recovery_reboot' ? 'reboot' : 'reset' }];
    }
  }
}

// ---------------------------------------------------------------- what stays in force

/** Findings of before that still count, with those of now; one of each reason, its beginning kept. */
function carry(held: readonly Held[], findings: readonly Fresh[], signs: GpuSigns, now: AssessTime): Held[] {
  const fresh = new Map(findings.map((finding) => [finding.reason, heldFrom(finding, now)]));
  const kept = held
    .filter((one) => fresh.has(one.reason) || !isCured(one, signs, now))
    .map((one): Held => {
      const again = fresh.get(one.reason);
      if (again === undefined) return one;
      return { ...again, sinceWallMs: one.sinceWallMs, seenMs: Math.max(one.seenMs, again.seenMs) };
    });
  const added = [...fresh.values()]
    .filter(({ reason }) => !held.some((one) => one.reason === reason))
    // An old line of the log may tell of what was cured long before this agent started.
    .filter((one) => one.seenMs === now.monotonicMs || !isCured(one, signs, now));
  return [...kept, ...added];
}

function heldFrom({ ageMs = 0, ...finding }: Fresh, now: AssessTime): Held {
  return {
    ...finding,
    sinceWallMs: now.wallMs - ageMs,
    seenMs: now.monotonicMs - ageMs,
    ...(now.bootId === undefined ? {} : { bootId: now.bootId }),
  };
}

function isCured(held: Held, signs: GpuSigns, now: AssessTime): boolean {
  const cleanMs = held.reason === 'not_reported' ? CLEAN_MS.notReported : CLEAN_MS[held.state];
  const clean = now.monotonicMs - held.seenMs >= cleanMs;
  const rebooted = held.bootId !== undefined && now.bootId !== undefined && held.bootId !== now.bootId;
  switch (held.cure) {
    case 'sign':
    case 'quiet':
      return clean;
    case 'reset':
      // Without the driver's word nobody knows whether a reset took place.
      return rebooted || (clean && /^none$/i.test(signs.recoveryAction ?? ''));
    case 'reboot':
      return rebooted;
  }
}

function withHeld(memory: GpuMemory, held: readonly Held[]): GpuMemory {
  const worst = held.find(({ state }) => state === 'excluded') ?? held[0];
  if (worst === undefined) return { ...memory, held, health: { state: 'healthy' } };
  const others = held.filter((one) => one !== worst).map(({ reason }) => reason);
  return {
    ...memory,
    held,
    health: {
      state: worst.state,
      reason: worst.reason,
      evidence: others.length === 0 ? worst.evidence : `${worst.evidence}; also ${others.join(', ')}`,
      sinceWallMs: worst.sinceWallMs,
      clearedBy: worst.reason === 'not_reported' ? 'the device being reported again' : CURE_TEXT[worst.cure],
    },
  };
}
