import { isIP } from 'node:net';

export type AddressVerdict =
  { readonly ok: true; readonly address: string } | { readonly ok: false; readonly message: string };

/**
 * The address at which a node's engines are reached: what the agent says, or else where its stream comes from. Requests
 * of users go there, so an agent cannot name a place that is no machine of ours by nature: cloud metadata services live
 * on link-local addresses, and "any" or multicast addresses are no host at all. Loopback is only true for an agent that
 * itself dials over loopback.
 */
export function nodeAddress(said: string | undefined, peerHost: string): AddressVerdict {
  const address = said ?? peerHost;
  if (isIP(address) === 0) {
    return /^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$/.test(address)
      ? { ok: true, address }
      : {
          ok: false,
          message: `the address ${JSON.stringify(address)} is neither an IP address nor a host name`,
        };
  }
  const kind = addressKind(address);
  if (kind === 'loopback' && addressKind(peerHost) !== 'loopback') {
    return {
      ok: false,
      message: `the address ${address} is the agent's own loopback, but the agent is on another machine (${peerHost}); set \`address\` in its configuration`,
    };
  }
  if (kind === 'global' || kind === 'loopback') return { ok: true, address };
  return { ok: false, message: `the address ${address} is ${kind} and cannot be a node's` };
}

type AddressKind = 'global' | 'loopback' | 'link-local' | 'unspecified' | 'multicast';

function addressKind(address: string): AddressKind {
  const plain = address.toLowerCase().replace(/^::ffff:(?=\d+\.)/, '');
  if (isIP(plain) === 4) {
    const [first = 0, second = 0] = plain.split('.').map(Number);
    if (first === 127) return 'loopback';
    if (first === 0) return 'unspecified';
    if (first === 169 && second === 254) return 'link-local';
    return first >= 224 ? 'multicast' : 'global';
  }
  if (plain === '::1') return 'loopback';
  if (plain === '::') return 'unspecified';
  if (/^fe[89ab]/.test(plain)) return 'link-local';
  return plain.startsWith('ff') ? 'multicast' : 'global';
}

/** Host of a gRPC peer such as `10.0.0.7:41234` or `[fd00::7]:41234` (gRPC also writes IPv6 without brackets). */
export function peerHost(peer: string): string {
  const bracketed = /^\[(.+)\]:\d+$/.exec(peer)?.[1];
  const host = bracketed ?? peer.replace(/:\d+$/, '');
  return host.replace(/^::ffff:(?=\d+\.)/, '');
}
