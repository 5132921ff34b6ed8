/** What the server would say to this agent, asked without becoming its agent. */
import { status, type ServiceError } from '@grpc/grpc-js';
import type { Hello, Refusal, Welcome } from '../agent-protocol/messages.js';
import { createAgentGatewayClient } from '../agent-protocol/proto.js';
import { parseServerMessage } from '../agent-protocol/to-domain.js';
import { probeToWire } from '../agent-protocol/to-wire.js';
import type { WireServerMessage } from '../agent-protocol/wire.js';
import type { AgentConfig } from '../config/agent-config.js';
import type { Clock } from '../shared/clock.js';
import { DialCertificates, readToken } from './dial-credentials.js';
import { pause } from './wait.js';

export type ServerAnswer =
  | { readonly kind: 'welcome'; readonly welcome: Welcome }
  | { readonly kind: 'refusal'; readonly refusal: Refusal }
  /** A server of llmgw from before the question was known. */
  | { readonly kind: 'older' }
  /** Somebody listens there, and it is no agent listener of llmgw, or not by these certificates. */
  | { readonly kind: 'stranger'; readonly reason: string };

/** Settles within `limitMs`; throws when a file of token or certificates cannot be read. */
export async function askServer(
  config: Pick<AgentConfig, 'server' | 'tls' | 'joinTokenFile'>,
  hello: Omit<Hello, 'joinToken'>,
  clock: Clock,
  limitMs: number,
): Promise<ServerAnswer> {
  const full = { ...hello, ...readToken(config.joinTokenFile) };
  const client = createAgentGatewayClient(
    config.server,
    new DialCertificates(config.tls, () => undefined).next(clock.wallMs()),
  );
  const over = new AbortController();
  const stream = client.connect();
  const answer = new Promise<ServerAnswer>((resolve) => {
    stream.on('data', (wire: WireServerMessage) => resolve(understood(wire, hello.nodeId)));
    stream.on('error', (error: ServiceError) => resolve(failed(error)));
    stream.on('end', () => resolve({ kind: 'stranger', reason: 'it ended the stream without an answer' }));
  });
  try {
    stream.write(probeToWire(full));
    return await Promise.race([
      answer,
      pause(clock, limitMs, over.signal).then((): ServerAnswer => ({
        kind: 'stranger',
        reason: 'no answer',
      })),
    ]);
  } finally {
    over.abort();
    stream.cancel();
    client.close();
  }
}

function understood(wire: WireServerMessage, nodeId: string): ServerAnswer {
  const parsed = parseServerMessage(wire, nodeId);
  if (!parsed.ok) return { kind: 'stranger', reason: parsed.problem.message };
  const { message } = parsed;
  if (message.kind === 'welcome' || message.kind === 'refusal') return message;
  return { kind: 'stranger', reason: `it answered with a ${message.kind}` };
}

function failed({ code, details, message }: ServiceError): ServerAnswer {
  // How every server of llmgw answers a first message that it does not know.
  if (code === status.INVALID_ARGUMENT && details.endsWith('not a hello')) return { kind: 'older' };
  return { kind: 'stranger', reason: cause(details || message) };
}

/** What grpc-js wraps around the one thing that happened: a time, and notes on how the name was resolved. */
function cause(details: string): string {
  return details
    .replace(/^No connection established\. Last error: /, '')
    .replace(/\.? Resolution note:.*$/s, '')
    .replace(/ \(\d{4}-\d\d-\d\dT[\d:.]+Z\)/g, '');
}
