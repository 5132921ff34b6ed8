import { describe, expect, it } from 'vitest';
import { formatAddress, isLinkLocalHost, isLoopbackHost, parseAddress, parseEndpointUrl } from './address.js';

describe('listen addresses', () => {
  it.each([
    ['127.0.0.1:8080', '127.0.0.1', 8080],
    ['0.0.0.0:0', '0.0.0.0', 0],
    ['[::1]:8080', '::1', 8080],
    ['[fe80::1%eth0]:1', 'fe80::1%eth0', 1],
    ['gateway.internal:65535', 'gateway.internal', 65_535],
  ])('%s', (text, host, port) => {
    const parsed = parseAddress(text);
    expect(parsed).toEqual({ ok: true, value: { host, port } });
    expect(parsed.ok && formatAddress(parsed.value)).toBe(text);
  });

  it.each([
    '8080',
    ':8080',
    'host',
    'host:',
    '::1:8080',
    '[::1]',
    '[1.2.3.4]:1',
    'a:65536',
    'http://a:1',
    'a b:1',
    'u@h:1',
    '',
  ])('%j is refused', (text) => {
    expect(parseAddress(text)).toMatchObject({ ok: false });
  });

  it.each([
    ['127.0.0.1', true],
    ['127.9.9.9', true],
    ['localhost', true],
    ['::1', true],
    ['0.0.0.0', false],
    ['::', false],
    ['10.0.0.1', false],
    ['localhost.evil.example', false],
  ])('loopback %s: %s', (host, expected) => {
    expect(isLoopbackHost(host)).toBe(expected);
  });
});

describe('endpoint URLs', () => {
  it.each([
    ['http://127.0.0.1:8000', { protocol: 'http', host: '127.0.0.1', port: 8000, basePath: '' }],
    ['http://h', { protocol: 'http', host: 'h', port: 80, basePath: '' }],
    ['https://h/', { protocol: 'https', host: 'h', port: 443, basePath: '' }],
    ['http://[::1]:1/llm/', { protocol: 'http', host: '::1', port: 1, basePath: '/llm' }],
  ])('%s', (text, target) => {
    expect(parseEndpointUrl(text)).toEqual({ ok: true, value: target });
  });

  // An endpoint URL makes the server open connections: whatever is not plainly an engine's address is refused.
  it.each([
    ['file:///etc/passwd', 'http:// or https://'],
    ['ftp://h', 'http:// or https://'],
    ['h:8000', 'http:// or https://'],
    ['not a url', 'expected a URL'],
    ['http://user:pass@h', 'user name or password'],
    ['http://h?x=1', 'query or fragment'],
    ['http://h#x', 'query or fragment'],
    ['http://h:8000/v1', 'leave out /v1'],
    ['http://169.254.169.254', 'link-local'],
    ['http://2852039166', 'link-local'],
    ['http://0xa9fea9fe', 'link-local'],
    ['http://[fe80::1]', 'link-local'],
    ['http://[::ffff:169.254.169.254]', 'link-local'],
  ])('%s is refused: %s', (text, why) => {
    const parsed = parseEndpointUrl(text);
    expect(parsed.ok ? '' : parsed.problem).toContain(why);
  });

  it('repeats no password', () => {
    const parsed = parseEndpointUrl('nonsense://user:hunter2@ h');
    expect(JSON.stringify(parsed)).not.toContain('hunter2');
  });

  it('knows link-local hosts in every spelling of their own', () => {
    expect(['febf::1', 'fe80::2', '169.254.0.1'].map(isLinkLocalHost)).toEqual([true, true, true]);
    expect(['fec0::1', 'fe8::1', '169.255.0.1', 'fe80.example'].map(isLinkLocalHost)).toEqual([
      false,
      false,
      false,
      false,
    ]);
  });
});
