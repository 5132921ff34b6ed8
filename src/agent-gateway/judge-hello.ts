import type { Hello, RefusalCode } from '../agent-protocol/messages.js';
import { negotiateVersion, OUR_VERSIONS } from '../agent-protocol/version.js';
import type { JoinTokens } from './join-tokens.js';
import { nodeAddress } from './node-address.js';

/** An agent cannot have obeyed this many more terms than we ever took; believing it would only burn numbers. */
const TERM_LEAP_MAX = 1_000_000;

export type HelloVerdict =
  | { readonly ok: true; readonly version: number; readonly address: string }
  | { readonly ok: false; readonly code: RefusalCode; readonly message: string };

/** Whether an agent may come in at all; whether its node id is free is another question. */
export function judgeHello(
  hello: Hello,
  from: { readonly peerHost: string; readonly term: number; readonly joinTokens: JoinTokens | undefined },
): HelloVerdict {
  const version = negotiateVersion(OUR_VERSIONS, {
    version: hello.protocolVersion,
    min: hello.minProtocolVersion,
  });
  if (!version.ok) return { ok: false, code: 'incompatibleVersion', message: version.message };
  if (from.joinTokens !== undefined && !from.joinTokens.accepts(hello.joinToken)) {
    const message =
      hello.joinToken === undefined
        ? 'a join token is needed: set joinTokenFile in the agent’s configuration'
        : 'the join token is not known here: it was revoked or belongs to another cluster';
    return { ok: false, code: 'unauthenticated', message };
  }
  const address = nodeAddress(hello.address, from.peerHost);
  if (!address.ok) return { ok: false, code: 'invalidHello', message: address.message };
  if (hello.highestTerm > from.term + TERM_LEAP_MAX) {
    return { ok: false, code: 'invalidHello', message: `the term ${hello.highestTerm} cannot be true` };
  }
  return { ok: true, version: version.version, address: address.address };
}
