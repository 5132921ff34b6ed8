import type { EndpointStatus } from '../router/ports.js';
import { hostPort } from './replica-views.js';
import { known } from './view-times.js';
import type { EndpointView } from './views/replicas.js';

/** An endpoint as the router has it; its credential stays where it is. */
export function endpointView(status: EndpointStatus, nowMs: number): EndpointView {
  const { endpoint, evidence } = status;
  return {
    id: endpoint.id,
    generation: endpoint.generation,
    url: `${endpoint.protocol}://${hostPort(endpoint.host, endpoint.port)}${endpoint.basePath}`,
    models: endpoint.models,
    pool: endpoint.pool,
    weight: endpoint.weight,
    engine: endpoint.engine,
    state: status.state,
    inflight: status.inflight,
    outstandingTokens: status.outstandingTokens,
    requestsTotal: status.requestsTotal,
    failuresTotal: status.failuresTotal,
    ...status.traffic,
    ...known('reason', status.reason),
    ...known('maxConcurrency', endpoint.maxConcurrency),
    ...known('nodeId', endpoint.nodeId),
    ...known(
      'lastByteAgeMs',
      evidence.lastByteMs === undefined ? undefined : Math.round(nowMs - evidence.lastByteMs),
    ),
    ...known('engineRunning', status.engineRunning),
    ...known('engineWaiting', status.engineWaiting),
  };
}
