/** The live view: who is busy, how fast, and what fails. */
import type { ModelSummaryView } from '../../admin-api/views/models.js';
import type { EndpointView } from '../../admin-api/views/replicas.js';
import type { StatusView } from '../../admin-api/views/status.js';
import { paint, type Surface } from './style.js';
import { renderTable, type Column } from './table.js';
import { ago, count, span } from './values.js';

export interface TopData {
  readonly status: StatusView;
  readonly endpoints: readonly EndpointView[];
  readonly models: readonly ModelSummaryView[];
}

/** An endpoint with what happened since the look before. */
interface Row extends EndpointView {
  readonly perSecond?: number;
  readonly failuresPerSecond?: number;
}

const COLUMNS: readonly Column<Row>[] = [
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
  { title: 'REQ/S', cell: ({ perSecond }) => rate(perSecond), right: true },
  {
    title: 'FAIL/S',
    cell: ({ failuresPerSecond }) => rate(failuresPerSecond),
    right: true,
    tone: ({ failuresPerSecond }) => ((failuresPerSecond ?? 0) > 0 ? 'bad' : undefined),
  },
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
  const rows = now.endpoints
    .map((endpoint) => withRates(endpoint, now, before))
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
    '',
    ...(rows.length === 0 ? ['no endpoints'] : renderTable(COLUMNS, rows, surface)),
  ];
}

function withRates(endpoint: EndpointView, now: TopData, before: TopData | undefined): Row {
  const last = before?.endpoints.find(
    ({ id, generation }) => id === endpoint.id && generation === endpoint.generation,
  );
  const seconds = before === undefined ? 0 : (now.status.uptimeMs - before.status.uptimeMs) / 1_000;
  // A server that was restarted in between counts from zero again.
  if (last === undefined || seconds <= 0) return endpoint;
  return {
    ...endpoint,
    perSecond: Math.max(0, endpoint.requestsTotal - last.requestsTotal) / seconds,
    failuresPerSecond: Math.max(0, endpoint.failuresTotal - last.failuresTotal) / seconds,
  };
}
