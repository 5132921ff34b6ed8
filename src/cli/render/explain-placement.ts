/** Why a replica stands where it stands, or nowhere: every candidate, its numbers, and what would change the answer. */
import type { PlacementView } from '../../admin-api/views/models.js';
import type { GpuVerdict, NodeVerdict, ProfileExplanation, Reason } from '../../domain/cluster.js';
import { paint, type Surface } from './style.js';
import { agoSince, bytes, count, plain } from './values.js';

export function renderPlacement(view: PlacementView, surface: Surface): string[] {
  const { explanation } = view;
  const chosen = explanation.chosen;
  const chosenNodes = new Set(chosen?.shards.map(({ nodeId }) => nodeId));
  return [
    headline(view, surface),
    ...view.conditions.flatMap((reason) => told('note', reason, 'busy', surface)),
    ...verdict(view, surface),
    ...explanation.profiles.flatMap((profile) =>
      renderProfile(profile, chosen?.profile === profile.profile ? chosenNodes : new Set(), surface),
    ),
  ];
}

function headline(view: PlacementView, surface: Surface): string {
  const when =
    view.basis === 'now'
      ? 'as it would be decided now'
      : `as it was decided ${agoSince(view.at, surface.nowMs)}${view.replicaId === undefined ? '' : ` for ${view.replicaId}`}`;
  return paint(
    `${plain(view.model)}: ${count(view.have, 'replica')} placed, ${view.desired} wanted, ${when}`,
    'strong',
    surface,
  );
}

function verdict({ explanation }: PlacementView, surface: Surface): string[] {
  const { chosen, blocked, counterfactual } = explanation;
  if (chosen !== undefined) {
    const places = chosen.shards.map((shard) => {
      const gpus = shard.gpuUuids.length === 0 ? '' : ` (${shard.gpuUuids.join(', ')})`;
      return `${shard.nodeId}${gpus}`;
    });
    const margin =
      chosen.beat === undefined
        ? ''
        : `; next best ${chosen.beat.nodeId}, behind by ${score(chosen.beat.byScore)}`;
    return [
      paint(`chosen: profile ${chosen.profile} on ${places.join(' + ')}${margin}`, 'good', surface),
      ...told('held back', blocked, 'busy', surface),
    ];
  }
  return [
    ...(blocked === undefined
      ? [paint('nothing fits', 'bad', surface)]
      : told('not placed', blocked, 'bad', surface)),
    ...told('nearest', counterfactual, 'busy', surface),
  ];
}

const told = (label: string, reason: Reason | undefined, tone: 'busy' | 'bad', surface: Surface): string[] =>
  reason === undefined
    ? []
    : [paint(`${label}: ${plain(reason.message)} (${plain(reason.code)})`, tone, surface)];

function renderProfile(profile: ProfileExplanation, chosen: ReadonlySet<string>, surface: Surface): string[] {
  const fits = profile.fits ? paint('fits', 'good', surface) : paint('does not fit', 'bad', surface);
  // The best candidate first, then those that fail for the fewest reasons: what is nearest to fitting is read first.
  const nodes = profile.nodes.toSorted(
    (a, b) =>
      Number(chosen.has(b.nodeId)) - Number(chosen.has(a.nodeId)) ||
      Number(b.fits) - Number(a.fits) ||
      (b.total ?? 0) - (a.total ?? 0) ||
      a.reasons.length - b.reasons.length,
  );
  const width = Math.max(...nodes.map(({ nodeId }) => nodeId.length), 0);
  return [
    '',
    `${paint(`profile ${profile.profile}`, 'strong', surface)} ${fits}`,
    ...profile.reasons.map((reason) => `  ${plain(reason.message)} (${plain(reason.code)})`),
    ...nodes.flatMap((node) => renderNode(node, chosen.has(node.nodeId), width, surface)),
  ];
}

function renderNode(node: NodeVerdict, chosen: boolean, width: number, surface: Surface): string[] {
  const mark = chosen ? paint('*', 'good', surface) : ' ';
  const name = node.nodeId.padEnd(width);
  const lead = `${mark} ${name}  `;
  const gpus = node.gpus.flatMap((gpu) => renderGpu(gpu, surface));
  if (node.fits) return [`${lead}${paint('yes', 'good', surface)}  ${scores(node)}`, ...gpus];
  const [first, ...rest] = node.reasons.map((reason) => `${plain(reason.message)} (${plain(reason.code)})`);
  const blank = ' '.repeat(width + 4);
  return [
    `${lead}${paint('no', 'bad', surface)}   ${first ?? ''}`.trimEnd(),
    ...rest.map((reason) => `${blank}     ${reason}`),
    ...gpus,
  ];
}

function scores({ total, scores: parts }: NodeVerdict): string {
  const shown = Object.entries(parts ?? {}).map(([name, value]) => `${name} ${score(value)}`);
  const sum = total === undefined ? '' : `score ${score(total)}`;
  return [sum, shown.length === 0 ? '' : `(${shown.join(', ')})`].filter((part) => part !== '').join(' ');
}

const score = (value: number): string => String(Number(value.toFixed(3)));

function renderGpu(gpu: GpuVerdict, surface: Surface): string[] {
  const verdictText = gpu.fits ? paint('yes', 'good', surface) : paint('no ', 'bad', surface);
  const memory =
    gpu.memoryFreeBytes === undefined && gpu.memoryNeededBytes === undefined
      ? ''
      : `${bytes(gpu.memoryFreeBytes)} free${gpu.memoryNeededBytes === undefined ? '' : `, ${bytes(gpu.memoryNeededBytes)} needed`}`;
  const held = gpu.heldBy.length === 0 ? '' : `held by ${gpu.heldBy.join(', ')}`;
  const why = gpu.reasons.map((reason) => `${plain(reason.message)} (${plain(reason.code)})`).join('; ');
  // A reason has the numbers and holders that matter to it.
  const parts = gpu.fits ? [plain(gpu.type), memory, held] : [plain(gpu.type), why];
  const shown = parts.filter((part) => part !== '');
  return [`    ${verdictText}  ${gpu.uuid}  ${shown.join('  ')}`];
}
