/** Addresses as they are written in configuration: listeners, agents' hosts, endpoint URLs. */
import { isIP } from 'node:net';
import type { Parsed } from './units.js';

export interface SocketAddress {
  /** Host name or IP address, IPv6 without brackets. */
  readonly host: string;
  /** 0 lets the system choose. */
  readonly port: number;
}

export const ADDRESS_EXPECTED = 'host:port, such as 127.0.0.1:8080, 0.0.0.0:8080 or [::1]:8080';

/**
 * Reads `host:port` or `[ipv6]:port`. A missing host is refused: whether `:8080` means every interface
 * or loopback only is just what must never be guessed.
 */
export function parseAddress(text: string): Parsed<SocketAddress> {
  const match = /^(?:\[([0-9A-Fa-f:.]+(?:%[\w.-]+)?)\]|([^\s:[\]/@]+)):(\d{1,5})$/.exec(text);
  const host = match?.[1] ?? match?.[2];
  const port = Number(match?.[3]);
  const bracketed = match?.[1];
  const bad =
    host === undefined || port > 65_535 || (bracketed !== undefined && isIP(bracketed.split('%')[0]!) !== 6);
  if (bad) return { ok: false, problem: `expected ${ADDRESS_EXPECTED}, got "${text}"` };
  return { ok: true, value: { host, port } };
}

/** Writes an address so that {@link parseAddress} reads it back. */
export function formatAddress({ host, port }: SocketAddress): string {
  return host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`;
}

/** Whether only this machine can reach a listener bound to the host. */
export function isLoopbackHost(host: string): boolean {
  return host === 'localhost' || host === '::1' || /^127(\.\d{1,3}){3}$/.test(host);
}

/** Link-local addresses: cloud metadata services live there, engines never do. */
export function isLinkLocalHost(host: string): boolean {
  const bare = host.replace(/^\[|\]$/g, '').toLowerCase();
  // fe80::/10 spans fe80 to febf. A mapped IPv4 address keeps its last 32 bits: ::ffff:a9fe:xxxx is 169.254.x.x.
  return (
    bare.startsWith('169.254.') || /^fe[89ab][0-9a-f]:/.test(bare) || /^::ffff:(a9fe:|169\.254\.)/.test(bare)
  );
}

export interface EndpointTarget {
  readonly protocol: 'http' | 'https';
  readonly host: string;
  readonly port: number;
  /** Without a trailing slash; usually empty. */
  readonly basePath: string;
}

/** Reads the URL of a static endpoint: the part before `/v1/...`. */
export function parseEndpointUrl(text: string): Parsed<EndpointTarget> {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  const problem = url === undefined ? notAUrl(text) : unfitUrl(url);
  if (problem !== undefined || url === undefined) return { ok: false, problem: problem ?? notAUrl(text) };
  const protocol = url.protocol === 'https:' ? 'https' : 'http';
  return {
    ok: true,
    value: {
      protocol,
      host: url.hostname.replace(/^\[|\]$/g, ''),
      port: url.port === '' ? (protocol === 'https' ? 443 : 80) : Number(url.port),
      basePath: url.pathname.replace(/\/+$/, ''),
    },
  };
}

const notAUrl = (text: string): string =>
  `expected a URL such as http://127.0.0.1:8000, got "${maskUserinfo(text)}"`;

function unfitUrl(url: URL): string | undefined {
  if (url.protocol !== 'http:' && url.protocol !== 'https:') {
    return `expected an http:// or https:// URL, got "${url.protocol}"`;
  }
  if (url.username !== '' || url.password !== '') {
    return 'a URL must not hold a user name or password; put the key in a file and name it in apiKeyFile';
  }
  if (url.search !== '' || url.hash !== '') return 'a URL must not hold a query or fragment';
  if (isLinkLocalHost(url.hostname)) return `the link-local address ${url.hostname} is refused`;
  if (/\/v1\/*$/.test(url.pathname)) return 'leave out /v1: the path of each request is added to the URL';
  return undefined;
}

/** Hides `user:password@` wherever a URL is shown. */
export function maskUserinfo(text: string): string {
  return text.replace(/(:\/\/)[^/@\s]*@/g, '$1***@');
}
