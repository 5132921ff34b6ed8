import type { Registry } from 'prom-client';
import type { ReuseTotals } from '../domain/balancing/prefix-index.js';
import { Histogram, LONG_SECONDS, NamedCounts, SHORT_SECONDS, TINY_SECONDS } from './numeric-series.js';
import { ENGINE_ROUTES, OTHER_ROUTE_LABEL } from './routes.js';

/** Label of every model name that no table knows: clients must not be able to invent label values. */
export const UNKNOWN_MODEL_LABEL = '_unknown';

/** Requests of one model on one route. */
export class RouteSeries {
  /** By HTTP status, where an answer that broke off counts as what broke it. */
  readonly codes = new NamedCounts();
  readonly duration = new Histogram(LONG_SECONDS);
}

/** Everything counted for one model. Kept while the model exists. */
export class ModelSeries {
  private readonly routes: (RouteSeries | undefined)[] = [];
  readonly firstToken = new Histogram(LONG_SECONDS);
  readonly interToken = new Histogram(SHORT_SECONDS);
  readonly queue = new Histogram(LONG_SECONDS);
  readonly attempts = new NamedCounts();
  readonly retries = new NamedCounts();
  /** Requests for this model that another one took, by why. */
  readonly fallbacks = new NamedCounts();
  promptTokens = 0;
  completionTokens = 0;
  cachedTokens = 0;
  usageMissing = 0;

  /** @param index of the route in the route table; one beyond it is `other` */
  route(index: number): RouteSeries {
    return (this.routes[index] ??= new RouteSeries());
  }

  /** Requests that are over, on all routes; of these, the ones that no engine answered for: 429 and 5xx. */
  requestCounts(): { readonly requests: number; readonly failures: number } {
    let requests = 0;
    let failures = 0;
    for (const route of this.routes) {
      for (const [code, count] of route?.codes.entries() ?? []) {
        requests += count;
        if (code === '429' || code >= '500') failures += count;
      }
    }
    return { requests, failures };
  }

  routeEntries(): [string, RouteSeries][] {
    return this.routes.flatMap((series, index) =>
      series === undefined
        ? []
        : [
            [
              ENGINE_ROUTES[index]?.label ?? READ_LABELS[index - ENGINE_ROUTES.length] ?? OTHER_ROUTE_LABEL,
              series,
            ],
          ],
    );
  }
}

const READ_LABELS = ['/v1/models', '/health'];
/** Series index of the routes that are answered here. */
export const MODELS_ROUTE_INDEX = ENGINE_ROUTES.length;
export const HEALTH_ROUTE_INDEX = ENGINE_ROUTES.length + 1;
export const OTHER_ROUTE_INDEX = ENGINE_ROUTES.length + 2;

/** What the router's live state adds at the moment of a scrape. */
export interface LiveGauges {
  prefixTotals(): ReuseTotals;
  prefixBytes(): number;
  /** Clients' connections, by who reads their requests. */
  clientConnections(): Readonly<Record<'fast' | 'node', number>>;
  modelGauges(): Iterable<{
    readonly name: string;
    readonly series: ModelSeries;
    readonly queueDepth: number;
  }>;
  endpointGauges(): Iterable<{
    readonly id: string;
    readonly inflight: number;
    readonly up: boolean;
    readonly ejections: number;
  }>;
}

interface Sample {
  readonly labels: Record<string, string>;
  readonly value: number;
  readonly metricName?: string;
}

interface Family {
  readonly name: string;
  readonly help: string;
  readonly type: 'counter' | 'gauge' | 'histogram';
  readonly read: () => Sample[];
}

/** The data plane's metrics: numbers written on the hot path, turned into Prometheus series only when scraped. */
export class RouterMetrics {
  /** Requests for models that no table knows, and those that name none. */
  readonly unknown = new ModelSeries();
  readonly streamAborted = new NamedCounts();
  readonly decisions = new Map<string, Histogram>();
  retryBudgetExhausted = 0;

  /** Time one choice of an endpoint took, by policy. */
  decided(policy: string, seconds: number): void {
    let histogram = this.decisions.get(policy);
    if (histogram === undefined) this.decisions.set(policy, (histogram = new Histogram(TINY_SECONDS)));
    histogram.observe(seconds);
  }

  /** Makes the series readable through `registry`. Labels exist exactly as long as their model or endpoint does. */
  registerOn(registry: Registry, live: LiveGauges): void {
    for (const family of this.families(live)) {
      const metric = {
        name: family.name,
        get: () =>
          Promise.resolve({
            name: family.name,
            help: family.help,
            type: family.type,
            aggregator: 'sum',
            values: family.read(),
          }),
        // The library resets its own metrics in tests; ours are the router's and go with it.
        reset: () => undefined,
      };
      registry.registerMetric(metric as unknown as Parameters<Registry['registerMetric']>[0]);
    }
  }

  private families(live: LiveGauges): Family[] {
    const models = () => [
      ...live.modelGauges(),
      { name: UNKNOWN_MODEL_LABEL, series: this.unknown, queueDepth: 0 },
    ];
    const perModel = (read: (series: ModelSeries, model: string) => Sample[]) => () =>
      models().flatMap(({ name, series }) => read(series, name));
    const histogram = (name: string, help: string, pick: (series: ModelSeries) => Histogram): Family => ({
      name,
      help,
      type: 'histogram',
      read: perModel((series, model) => histogramSamples(name, { model }, pick(series))),
    });
    const counts = (
      name: string,
      help: string,
      label: string,
      pick: (series: ModelSeries) => NamedCounts,
    ): Family => ({
      name,
      help,
      type: 'counter',
      read: perModel((series, model) => countSamples(pick(series), label, { model })),
    });
    const single = (name: string, help: string, read: () => number): Family => ({
      name,
      help,
      type: 'counter',
      read: () => [{ labels: {}, value: read() }],
    });
    const endpoints = (
      name: string,
      help: string,
      type: Family['type'],
      read: (
        endpoint: ReturnType<LiveGauges['endpointGauges']> extends Iterable<infer E> ? E : never,
      ) => number,
    ): Family => ({
      name,
      help,
      type,
      read: () => [...live.endpointGauges()].map((e) => ({ labels: { endpoint: e.id }, value: read(e) })),
    });
    return [
      {
        name: 'llmgw_client_connections',
        help: "Open connections of clients, by who reads their requests: the router itself (`fast`) or Node's HTTP parser (`node`).",
        type: 'gauge',
        read: () =>
          Object.entries(live.clientConnections()).map(([reader, value]) => ({ labels: { reader }, value })),
      },
      {
        name: 'llmgw_requests_total',
        help: 'Client requests by outcome; an answer that broke off counts as what broke it.',
        type: 'counter',
        read: perModel((series, model) =>
          series
            .routeEntries()
            .flatMap(([route, counted]) => countSamples(counted.codes, 'code', { model, route })),
        ),
      },
      {
        name: 'llmgw_request_duration_seconds',
        help: 'Time from the head of a request to the last byte of its answer.',
        type: 'histogram',
        read: perModel((series, model) =>
          series
            .routeEntries()
            .flatMap(([route, counted]) =>
              histogramSamples('llmgw_request_duration_seconds', { model, route }, counted.duration),
            ),
        ),
      },
      histogram(
        'llmgw_time_to_first_token_seconds',
        'Streams only: from the request being sent to an engine to its first token of any kind.',
        (series) => series.firstToken,
      ),
      histogram(
        'llmgw_inter_token_seconds',
        'Between two token events of a stream.',
        (series) => series.interToken,
      ),
      histogram(
        'llmgw_queue_seconds',
        'Time requests waited for an endpoint; 0 for those that did not.',
        (series) => series.queue,
      ),
      {
        name: 'llmgw_queue_depth',
        help: 'Requests waiting for an endpoint now.',
        type: 'gauge',
        read: () => [...live.modelGauges()].map((m) => ({ labels: { model: m.name }, value: m.queueDepth })),
      },
      {
        name: 'llmgw_tokens_total',
        help: 'Tokens as the engines reported them.',
        type: 'counter',
        read: perModel((series, model) => [
          { labels: { model, kind: 'prompt' }, value: series.promptTokens },
          { labels: { model, kind: 'completion' }, value: series.completionTokens },
          { labels: { model, kind: 'cached' }, value: series.cachedTokens },
        ]),
      },
      {
        name: 'llmgw_usage_missing_total',
        help: 'Answers whose engine reported no usage.',
        type: 'counter',
        read: perModel((series, model) => [{ labels: { model }, value: series.usageMissing }]),
      },
      counts(
        'llmgw_attempts_total',
        'Attempts on engines by outcome.',
        'outcome',
        (series) => series.attempts,
      ),
      counts(
        'llmgw_fallbacks_total',
        'Requests for a model that one of its fallbacks took.',
        'reason',
        (series) => series.fallbacks,
      ),
      counts('llmgw_retries_total', 'Retries by what failed before.', 'reason', (series) => series.retries),
      single(
        'llmgw_retry_budget_exhausted_total',
        'Retries not made because too many were running.',
        () => this.retryBudgetExhausted,
      ),
      endpoints('llmgw_ejections_total', 'Times an endpoint was taken out.', 'counter', (e) => e.ejections),
      endpoints('llmgw_inflight', 'Attempts running on an endpoint.', 'gauge', (e) => e.inflight),
      endpoints(
        'llmgw_endpoint_up',
        '1 while an endpoint is known to live and gets requests.',
        'gauge',
        (e) => (e.up ? 1 : 0),
      ),
      single(
        'llmgw_prefix_predicted_tokens_total',
        'Prompt tokens expected to be cached where requests were sent.',
        () => live.prefixTotals().predictedTokens,
      ),
      single(
        'llmgw_prefix_delivered_tokens_total',
        'Prompt tokens the engines said were cached.',
        () => live.prefixTotals().deliveredTokens,
      ),
      {
        name: 'llmgw_prefix_index_bytes',
        help: 'Memory of what the prefix caches of the endpoints are believed to hold.',
        type: 'gauge',
        read: () => [{ labels: {}, value: live.prefixBytes() }],
      },
      {
        name: 'llmgw_routing_decision_seconds',
        help: 'Time one choice of an endpoint took.',
        type: 'histogram',
        read: () =>
          [...this.decisions].flatMap(([policy, seconds]) =>
            histogramSamples('llmgw_routing_decision_seconds', { policy }, seconds),
          ),
      },
      {
        name: 'llmgw_stream_aborted_total',
        help: 'Answers that ended early after their first event.',
        type: 'counter',
        read: () => countSamples(this.streamAborted, 'reason', {}),
      },
    ];
  }
}

function countSamples(counts: NamedCounts, label: string, labels: Record<string, string>): Sample[] {
  return [...counts.entries()].map(([name, value]) => ({ labels: { ...labels, [label]: name }, value }));
}

function histogramSamples(name: string, labels: Record<string, string>, histogram: Histogram): Sample[] {
  if (histogram.count === 0) return [];
  const samples: Sample[] = [];
  let cumulative = 0;
  histogram.bounds.forEach((bound, i) => {
    cumulative += histogram.counts[i] ?? 0;
    samples.push({
      metricName: `${name}_bucket`,
      labels: { ...labels, le: String(bound) },
      value: cumulative,
    });
  });
  samples.push({ metricName: `${name}_bucket`, labels: { ...labels, le: '+Inf' }, value: histogram.count });
  samples.push({ metricName: `${name}_sum`, labels, value: histogram.sum });
  samples.push({ metricName: `${name}_count`, labels, value: histogram.count });
  return samples;
}
