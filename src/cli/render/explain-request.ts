/** What became of one request: when, where to, why there. */
import { paint, toneOf, type Surface } from './style.js';
import { renderTable, type Column } from './table.js';
import { ago, bytes, plain, span } from './values.js';

/** `GET requests/{id}/explain`; every field but the id may be missing while the request runs. */
export interface RequestView {
  readonly requestId: string;
  readonly receivedAt?: string;
  readonly receivedWallMs?: number;
  readonly route?: string;
  readonly model?: string;
  readonly alias?: string;
  readonly insteadOf?: string;
  readonly insteadBecause?: string;
  readonly split?: string;
  readonly key?: string;
  readonly routingProfile?: string;
  readonly stream?: boolean;
  readonly bodyBytes?: number;
  readonly estimatedPromptTokens?: number;
  readonly queuedBehind?: number;
  readonly phases?: readonly { readonly phase: string; readonly atMs: number }[];
  readonly choices?: readonly ChoiceView[];
  readonly attempts?: readonly AttemptView[];
  readonly status?: number;
  readonly error?: string;
  readonly usage?: {
    readonly promptTokens?: number;
    readonly completionTokens?: number;
    readonly cachedTokens?: number;
  };
  readonly endedMs?: number;
}

interface ChoiceView {
  readonly atMs: number;
  readonly policy: string;
  readonly chosen?: string;
  readonly because: string;
  readonly predictedCachedTokens?: number;
  readonly candidates: readonly CandidateView[];
}

interface CandidateView {
  readonly endpoint: string;
  readonly outstandingRequests: number;
  readonly outstandingTokens: number;
  readonly predictedCachedTokens: number;
  /** JSON has no NaN: null where no cost was computed. */
  readonly costSeconds: number | null;
  readonly rejected?: string;
}

interface AttemptView {
  readonly number: number;
  readonly endpoint: string;
  readonly kind: string;
  readonly startedMs: number;
  readonly connectedMs?: number;
  readonly headMs?: number;
  readonly firstEventMs?: number;
  readonly endedMs?: number;
  readonly status?: number;
  readonly outcome?: string;
  readonly next?: string;
  readonly nextBecause?: string;
}

export function renderRequest(view: RequestView, surface: Surface): string[] {
  return [
    ...headline(view, surface),
    ...phaseLines(view, surface),
    ...(view.choices ?? []).flatMap((choice) => renderChoice(choice, surface)),
    ...attemptLines(view.attempts ?? [], surface),
  ];
}

function headline(view: RequestView, surface: Surface): string[] {
  const receivedMs = view.receivedAt === undefined ? view.receivedWallMs : Date.parse(view.receivedAt);
  const when = receivedMs === undefined ? '' : `, ${ago(surface.nowMs - receivedMs)}`;
  const name = view.model ?? 'no model yet';
  const asked = `${name}${askedAs(view)}`;
  const outcome = view.error ?? (view.status === undefined ? 'running' : `status ${view.status}`);
  const took = view.endedMs === undefined ? '' : ` after ${span(view.endedMs)}`;
  const facts = [
    view.route,
    view.routingProfile === undefined ? undefined : `profile ${view.routingProfile}`,
    view.split === undefined ? undefined : `split: ${view.split}`,
    view.key === undefined ? undefined : `key ${view.key}`,
    view.stream === undefined ? undefined : view.stream ? 'streamed' : 'not streamed',
    view.bodyBytes === undefined ? undefined : `${bytes(view.bodyBytes)} body`,
    view.estimatedPromptTokens === undefined
      ? undefined
      : `about ${view.estimatedPromptTokens} prompt tokens`,
    view.queuedBehind === undefined ? undefined : `${view.queuedBehind} waited when it had to wait`,
    usageText(view.usage, predictedTokens(view)),
  ];
  const tone = view.error !== undefined || (view.status ?? 200) >= 400 ? 'bad' : 'good';
  return [
    `${paint(`${plain(view.requestId)}: ${plain(asked)}${when}`, 'strong', surface)}, ${paint(`${outcome}${took}`, tone, surface)}`,
    facts
      .filter((fact) => fact !== undefined)
      .map(plain)
      .join(', '),
  ].filter((line) => line !== '');
}

/** How the client named the model, and whose place this one took. */
function askedAs({ alias, insteadOf, insteadBecause }: RequestView): string {
  const words = [
    insteadOf === undefined ? undefined : `instead of ${insteadOf}: ${insteadBecause ?? 'unknown'}`,
    alias === undefined ? undefined : `asked for as ${alias}`,
  ].filter((word) => word !== undefined);
  return words.length === 0 ? '' : ` (${words.join(', ')})`;
}

/** What the last choice expected to be cached where it sent the request. */
const predictedTokens = ({ choices = [] }: RequestView): number | undefined =>
  choices.findLast(({ chosen }) => chosen !== undefined)?.predictedCachedTokens;

function usageText(usage: RequestView['usage'], predicted: number | undefined): string | undefined {
  if (usage === undefined) return undefined;
  const { cachedTokens } = usage;
  const expected = predicted === undefined ? '' : `, ${Math.round(predicted)} predicted`;
  const cached = cachedTokens === undefined ? '' : ` (${cachedTokens} cached${expected})`;
  return `used ${usage.promptTokens ?? '?'}${cached} + ${usage.completionTokens ?? '?'} tokens`;
}

/** The end is a moment, not a time that something took. */
const END = 'ended';

function phaseLines({ phases: reached = [], endedMs }: RequestView, surface: Surface): string[] {
  const phases = reached.filter(({ phase }) => phase !== END);
  if (phases.length === 0) return [];
  const steps = phases.map(({ phase, atMs }, at) => {
    const endMs = phases[at + 1]?.atMs ?? endedMs;
    return `${plain(phase)} ${endMs === undefined ? '...' : span(endMs - atMs)}`;
  });
  return ['', paint('Phases', 'strong', surface), `  ${steps.join('  ')}`];
}

const CANDIDATE_COLUMNS: readonly Column<CandidateView>[] = [
  { title: 'ENDPOINT', cell: (candidate) => candidate.endpoint },
  {
    title: 'COST',
    cell: ({ costSeconds }) => (costSeconds === null ? undefined : `${Number(costSeconds.toFixed(3))}s`),
    right: true,
  },
  { title: 'REQUESTS', cell: (candidate) => candidate.outstandingRequests, right: true },
  { title: 'TOKENS DUE', cell: (candidate) => candidate.outstandingTokens, right: true },
  { title: 'CACHED', cell: (candidate) => candidate.predictedCachedTokens, right: true },
  {
    title: 'VERDICT',
    cell: ({ rejected }) => rejected ?? 'chosen',
    tone: ({ rejected }) => (rejected === undefined ? 'good' : undefined),
  },
];

function renderChoice(choice: ChoiceView, surface: Surface): string[] {
  const result =
    choice.chosen === undefined ? `nothing (${choice.because})` : `${choice.chosen} (${choice.because})`;
  return [
    '',
    paint(`Choice at ${span(choice.atMs)} by ${plain(choice.policy)}: ${plain(result)}`, 'strong', surface),
    ...renderTable(CANDIDATE_COLUMNS, choice.candidates, surface, { indent: '  ' }),
  ];
}

const ATTEMPT_COLUMNS: readonly Column<AttemptView>[] = [
  { title: '#', cell: (attempt) => attempt.number, right: true },
  { title: 'ENDPOINT', cell: (attempt) => attempt.endpoint },
  { title: 'KIND', cell: (attempt) => attempt.kind },
  { title: 'STARTED', cell: (attempt) => span(attempt.startedMs), right: true },
  { title: 'CONNECTED', cell: (attempt) => since(attempt, attempt.connectedMs), right: true },
  { title: 'HEADERS', cell: (attempt) => since(attempt, attempt.headMs), right: true },
  { title: 'FIRST TOKEN', cell: (attempt) => since(attempt, attempt.firstEventMs), right: true },
  { title: 'ENDED', cell: (attempt) => since(attempt, attempt.endedMs), right: true },
  { title: 'STATUS', cell: (attempt) => attempt.status, right: true },
  {
    title: 'OUTCOME',
    cell: ({ outcome }) => outcome ?? 'running',
    tone: ({ outcome }) =>
      toneOf(outcome === undefined || outcome === 'ok' ? (outcome ?? 'pending') : 'error'),
  },
  {
    title: 'THEN',
    cell: ({ next, nextBecause }) => [next, nextBecause].filter((part) => part !== undefined).join(': '),
    shrinks: true,
  },
];

const since = ({ startedMs }: AttemptView, atMs: number | undefined): string | undefined =>
  atMs === undefined ? undefined : `+${span(atMs - startedMs)}`;

function attemptLines(attempts: readonly AttemptView[], surface: Surface): string[] {
  if (attempts.length === 0) return [];
  return [
    '',
    paint('Attempts', 'strong', surface),
    ...renderTable(ATTEMPT_COLUMNS, attempts, surface, { indent: '  ' }),
  ];
}
