/** The live view: who is busy, how fast, and what fails. */
import type { ModelSummaryView, ModelTrafficView } from '../../admin-api/views/models.js';
import type { EndpointView } from '../../admin-api/views/replicas.js';
import type { StatusView } from '../../admin-api/views/status.js';
import { paint, type Surface } from './style.js';
import { renderTable, type Column } from './table.js';
import { ago, count, span } from './values.js';

export interface TopData {
  readonly status: StatusView;
  readonly endpoints: readonly EndpointView[];
  readonly models: readonly ModelSummaryView[];
  readonly traffic: readonly ModelTrafficView[];
}

/** What happened since the look before. */
interface Rates {
  readonly perSecond?: number;
  readonly failuresPerSecond?: number;
  readonly tokensPerSecond?: number;
}

type EndpointRow = EndpointView & Rates;
type ModelRow = ModelTrafficView & Rates;

/** What is shown of models and endpoints alike. */
const TRAFFIC: readonly Column<(EndpointView | ModelTrafficView) & Rates>[] = [
  { title: 'REQ/S', cell: ({ perSecond }) => rate(perSecond), right: true },
  {
    title: 'FAIL/S',
    cell: ({ failuresPerSecond }) => rate(failuresPerSecond),
    right: true,
    tone: ({ failuresPerSecond }) => ((failuresPerSecond ?? 0) > 0 ? 'bad' : undefined),
  },
  { title: 'TOK/S', cell: ({ tokensPerSecond }) => rate(tokensPerSecond), right: true },
  { title: 'TTFT', cell: ({ firstTokenP50Ms }) => firstTokenP50Ms && span(firstTokenP50Ms), right: true },
  { title: 'P90', cell: ({ firstTokenP90Ms }) => firstTokenP90Ms && span(firstTokenP90Ms), right: true },
  {
    title: 'CACHED',
    cell: ({ cachedShare }) => (cachedShare === undefined ? undefined : `${Math.round(100 * cachedShare)}%`),
    right: true,
  },
];

const MODEL_COLUMNS: readonly Column<ModelRow>[] = [
  { title: 'MODEL', cell: (row) => row.model, shrinks: true },
  { title: 'QUEUE', cell: (row) => row.queueDepth, right: true },
  ...TRAFFIC,
];

const ENDPOINT_COLUMNS: readonly Column<EndpointRow>[] = [
  { title: 'ENDPOINT', cell: (row) => row.id },
  { title: 'STATE', cell: (row) => row.state, tone: 'state' },
  { title: 'MODELS', cell: ({ models }) => models.join(','), shrinks: true },
  { title: 'NODE', cell: (row) => row.nodeId },
  {
    title: 'IN FLIGHT',
    cell: ({ inflight, maxConcurrency }) =>
      maxConcurrency === undefined ? inflight : `${inflight}/${maxConcurrency}`,
    right: true,
  },
  { title: 'TOKENS DUE', cell: (row) => row.outstandingTokens, right: true },
  { title: 'QUEUE', cell: (row) => row.engineWaiting, right: true },
  ...TRAFFIC,
  {
    title: 'LAST BYTE',
    cell: ({ lastByteAgeMs }) => (lastByteAgeMs === undefined ? undefined : ago(lastByteAgeMs)),
    right: true,
  },
];

const rate = (perSecond: number | undefined): string | undefined => perSecond?.toFixed(1);

export function renderTop(now: TopData, before: TopData | undefined, surface: Surface): string[] {
  const { status, models } = now;
  const missing = models.filter(({ ready, desired }) => ready < desired);
  const seconds = before === undefined ? 0 : (status.uptimeMs - before.status.uptimeMs) / 1_000;
  const passed = now.traffic.map((row) =>
    withRates(
      row,
      before?.traffic.find(({ model }) => model === row.model),
      seconds,
    ),
  );
  const rows = now.endpoints
    .map((row) =>
      withRates(
        row,
        before?.endpoints.find((last) => isSame(last, row)),
        seconds,
      ),
    )
    .toSorted((a, b) => b.inflight - a.inflight || a.id.localeCompare(b.id));
  return [
    paint(
      `${count(status.requestsInFlight, 'request')} in flight, ${status.endpoints.up} of ${count(status.endpoints.total, 'endpoint')} up, up ${span(status.uptimeMs)}`,
      'strong',
      surface,
    ),
    ...missing.map(({ name, ready, desired, reason }) =>
      paint(
        `${name}: ${ready} of ${count(desired, 'replica')} ready${reason === undefined ? '' : `, ${reason.message}`}`,
        'busy',
        surface,
      ),
    ),
    ...(passed.length === 0 ? [] : ['', ...renderTable(MODEL_COLUMNS, passed, surface)]),
    '',
    ...(rows.length === 0 ? ['no endpoints'] : renderTable(ENDPOINT_COLUMNS, rows, surface)),
  ];
}

const isSame = (a: EndpointView, b: EndpointView): boolean => a.id === b.id && a.generation === b.generation;

type Counted = Pick<EndpointView, 'requestsTotal' | 'failuresTotal' | 'completionTokensTotal'>;

/** @param seconds since `last` was seen; none where it was not, or where the server was restarted and counts from zero again */
function withRates<T extends Counted>(row: T, last: T | undefined, seconds: number): T & Rates {
  if (last === undefined || seconds <= 0) return row;
  const since = (of: (counted: T) => number) => Math.max(0, of(row) - of(last)) / seconds;
  return {
    ...row,
    perSecond: since(({ requestsTotal }) => requestsTotal),
    failuresPerSecond: since(({ failuresTotal }) => failuresTotal),
    tokensPerSecond: since(({ completionTokensTotal }) => completionTokensTotal),
  };
}
