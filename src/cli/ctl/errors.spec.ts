import { createHash } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer as createHttpServer } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { createServer, type AddressInfo, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ControlServer, simModel } from '../../../test/support/control-server.js';
import { runLlmgw } from '../../../test/support/run-ctl.js';
import { TEST_TLS } from '../../../test/support/test-tls.js';
import { AdminAuthConfig, AuthConfig } from '../../config/auth-config.js';

const dir = mkdtempSync(join(tmpdir(), 'llmgw-ctl-errors-'));
const others: Server[] = [];
let server: ControlServer;

/** Where each case goes to, filled before the first. */
const at: Record<string, string> = {};

async function listening(name: string, other: Server, scheme = 'http'): Promise<void> {
  others.push(other);
  await new Promise<void>((resolve) => other.listen(0, '127.0.0.1', resolve));
  at[name] = `${scheme}://127.0.0.1:${(other.address() as AddressInfo).port}`;
}

function token(role: 'viewer' | 'operator' | 'admin') {
  writeFileSync(join(dir, role), `secret-${role}\n`);
  return { name: role, role, hash: `sha256:${createHash('sha256').update(`secret-${role}`).digest('hex')}` };
}

beforeAll(async () => {
  const admin = Object.assign(new AdminAuthConfig(), {
    tokens: (['viewer', 'operator', 'admin'] as const).map(token),
  });
  writeFileSync(join(dir, 'nobody'), 'secret-of-nobody');
  server = await ControlServer.start({
    models: [simModel('m1', { replicas: 1 })],
    auth: Object.assign(new AuthConfig(), { admin }),
  });
  await server.join('n1');
  const { admin: address, client, agent } = server.server.addresses;
  Object.assign(at, {
    admin: `http://${address}`,
    adminAsTls: `https://${address}`,
    client: `http://${client ?? ''}`,
    agent: `http://${agent ?? ''}`,
    nobody: 'http://127.0.0.1:1',
  });
  await listening('silent', createServer());
  await listening(
    'web',
    createHttpServer((_request, response) => response.end('<html>hello</html>')),
  );
  await listening('tls', createTlsServer(TEST_TLS), 'https');
  at['tlsAsPlain'] = at['tls']!.replace('https', 'http');
});

afterAll(async () => {
  for (const other of others) other.close();
  await server.dispose();
  rmSync(dir, { recursive: true });
});

/** Command, where to, as whom → exit code, code, the beginning of the message, what the next step speaks of. */
const CASES: readonly [string, string, string | undefined, number, string, RegExp, RegExp][] = [
  ['nodes', 'nobody', undefined, 5, 'unreachable', /connection refused/, /--server URL/],
  ['nodes', 'client', undefined, 5, 'unreachable', /is the client listener/, /default port 8081/],
  ['nodes', 'agent', undefined, 5, 'unreachable', /cannot reach/, /8081|--server/],
  ['nodes', 'web', undefined, 5, 'unreachable', /not as the admin API of llmgw/, /8081/],
  ['nodes', 'tls', undefined, 5, 'unreachable', /self-signed/, /NODE_EXTRA_CA_CERTS/],
  ['nodes', 'adminAsTls', undefined, 5, 'unreachable', /cannot reach/, /without TLS it is http:/],
  ['nodes', 'tlsAsPlain', undefined, 5, 'unreachable', /cannot reach/, /8081|--server/],
  ['nodes --timeout 100ms', 'silent', undefined, 6, 'timed_out', /did not answer within 100 ms/, /--timeout/],
  ['nodes', 'admin', undefined, 4, 'unauthenticated', /a token is needed/, /--token-file/],
  ['nodes', 'admin', 'nobody', 4, 'unauthenticated', /a token is needed/, /--token-file/],
  ['scale m1 2', 'admin', 'viewer', 4, 'forbidden', /needs the role operator/, /tokens create/],
  ['keys list', 'admin', 'viewer', 4, 'forbidden', /needs the role admin/, /tokens create/],
  ['node n2', 'admin', 'viewer', 3, 'not_found', /^no node 'n2'/, /known are: n1/],
  ['model mm', 'admin', 'viewer', 3, 'not_found', /^no model 'mm'/, /known are: m1/],
  ['replica r', 'admin', 'viewer', 3, 'not_found', /^no replica 'r'/, /known are: m1-/],
  ['explain-placement q', 'admin', 'viewer', 3, 'not_found', /^no model 'q'/, /known are: m1/],
  ['explain-request r', 'admin', 'viewer', 3, 'not_found', /not among the last/, /x-request-id/],
  ['logs no-such-shard', 'admin', 'viewer', 3, 'not_found', /no-such-shard/, /ctl replica/],
  ['nodes remove n1 --yes', 'admin', 'admin', 7, 'conflict', /n1/, /./],
  ['scale m1 -1', 'admin', 'admin', 2, 'invalid_argument', /whole number >= 0, got '-1'/, /^$/],
  ['scale m1 1000000', 'admin', 'admin', 2, 'invalid_argument', /replicas/, /^$/],
  ['drain n1 --deadline 5', 'admin', 'admin', 2, 'invalid_argument', /--deadline/, /^$/],
  ['nodes --timeout 5', 'admin', 'admin', 2, 'invalid_argument', /--timeout/, /^$/],
];

describe('whatever goes wrong', () => {
  it.each(CASES)('%s at %s as %s', async (line, where, who, exit, code, message, hint) => {
    const asWhom = who === undefined ? [] : ['--token-file', join(dir, who)];
    const words = ['ctl', '--server', at[where]!, ...asWhom, ...line.split(' ')];
    const ran = await runLlmgw(...words, '-o', 'json');
    expect(ran).toMatchObject({ code: exit, out: '' });
    const { error } = JSON.parse(ran.err) as { error: { code: string; message: string; hint?: string } };
    expect(error.code).toBe(code);
    expect(error.message).toMatch(message);
    expect(error.hint ?? '').toMatch(hint);
    // The same to read: no stack, no JSON, the next step on a line of its own.
    const read = await runLlmgw(...words);
    expect(read).toMatchObject({ code: exit, out: '' });
    expect(read.err).toBe(`${[error.message, error.hint].filter(Boolean).join('\n')}\n`);
    expect(ran.err + read.err).not.toContain('secret-');
  });
});
