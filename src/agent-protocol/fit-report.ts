/**
 * A report is refused as a whole when one thing in it is not as agreed. Much of what it holds comes from elsewhere: names
 * of files under a model root, what a vendor's tool prints, ports of other programs. None of that may cost the server
 * its sight of the node, so what cannot be told is left out here, and never what the agent itself decides by.
 */
import type { ForeignProcess, GpuReport } from '../domain/cluster.js';
import {
  CONDITIONS_MAX,
  CONTROL,
  FOREIGN_MAX,
  GPUS_MAX,
  ID_LIMIT_CHARS,
  PORTS_MAX,
  WEIGHTS_MAX,
} from './message-limits.js';
import type { NodeReport } from './messages.js';

/** The report with only what the other end takes. */
export function fitReport(report: NodeReport): NodeReport {
  const gpus = firstOfEach(report.gpus.filter(({ uuid }) => isIdentifier(uuid)));
  return {
    ...report,
    gpus: gpus.slice(0, GPUS_MAX).map(fitGpu),
    portsTaken: report.portsTaken.slice(0, PORTS_MAX),
    weightsPresent: report.weightsPresent.filter(isIdentifier).slice(0, WEIGHTS_MAX),
    // Those that block placement are what the server decides by.
    conditions: report.conditions
      .toSorted((a, b) => Number(b.blocksPlacement) - Number(a.blocksPlacement))
      .slice(0, CONDITIONS_MAX),
  };
}

function fitGpu(gpu: GpuReport): GpuReport {
  const { busId, memoryTotalBytes, memoryUsedBytes, ...rest } = gpu;
  return {
    ...rest,
    type: isIdentifier(gpu.type) ? gpu.type : 'unknown',
    ...(busId !== undefined && isIdentifier(busId) ? { busId } : {}),
    ...(isCount(memoryTotalBytes) ? { memoryTotalBytes: Math.floor(memoryTotalBytes) } : {}),
    ...(isCount(memoryUsedBytes) ? { memoryUsedBytes: Math.floor(memoryUsedBytes) } : {}),
    linkedTo: gpu.linkedTo.filter(isIdentifier).slice(0, GPUS_MAX),
    // Who holds most is who matters.
    foreign: gpu.foreign
      .filter(({ pid }) => isCount(pid))
      .toSorted((a, b) => (b.memoryBytes ?? 0) - (a.memoryBytes ?? 0))
      .slice(0, FOREIGN_MAX)
      .map(fitProcess),
  };
}

function fitProcess({ memoryBytes, ...rest }: ForeignProcess): ForeignProcess {
  return { ...rest, ...(isCount(memoryBytes) ? { memoryBytes: Math.floor(memoryBytes) } : {}) };
}

function firstOfEach(gpus: readonly GpuReport[]): readonly GpuReport[] {
  return [...new Map(gpus.toReversed().map((gpu) => [gpu.uuid, gpu])).values()].toReversed();
}

const isIdentifier = (text: string): boolean =>
  text !== '' && text.length <= ID_LIMIT_CHARS && !CONTROL.test(text);

const isCount = (value: number | undefined): value is number =>
  value !== undefined && value >= 0 && value <= Number.MAX_SAFE_INTEGER;
