/** Who may do what: keys of clients, tokens of operators and agents, TLS. Part of the server's configuration. */
import { Choice, ID, Nested, NestedList, Text, Toggle } from './setting.js';

export class AdminTokenConfig {
  @Text({ required: true, rule: ID, doc: 'Who uses the token; shown in the audit log.' })
  name!: string;

  @Text({
    required: true,
    secret: true,
    rule: { pattern: /^sha256:[0-9a-f]{64}$/, expected: 'sha256: and 64 hexadecimal digits' },
    doc: '`sha256:` and the hexadecimal digest of the token; the token itself is stored nowhere.',
  })
  hash!: string;

  @Choice(['viewer', 'operator', 'admin'], { doc: 'What the token allows.' })
  role: 'viewer' | 'operator' | 'admin' = 'viewer';
}

export class TlsConfig {
  @Text({ required: true, doc: 'Certificate chain, PEM. A renewed one is taken up while the server runs.' })
  certFile!: string;

  @Text({ required: true, doc: 'Private key, PEM.' })
  keyFile!: string;

  @Text({
    doc: 'Certificate authority; when given, clients must show a certificate it signed.',
    unset: 'none',
  })
  caFile?: string;
}

export class ApiKeysConfig {
  @Toggle({
    doc: 'Whether clients need an API key, on every path but `/health`. Keys are made with `llmgw ctl keys create`; without this a key still brings its limits.',
  })
  required = false;
}

export class AdminAuthConfig {
  @NestedList(() => AdminTokenConfig, {
    of: 'tokens',
    doc: 'Tokens for the admin API, beside those of `llmgw ctl tokens`.',
  })
  tokens: AdminTokenConfig[] = [];

  @Nested(() => TlsConfig, {
    atStart: true,
    doc: 'TLS of the admin listener. What the files hold may change at any time.',
    unset: 'plain HTTP',
  })
  tls?: TlsConfig;
}

export class AgentsAuthConfig {
  @Nested(() => TlsConfig, {
    atStart: true,
    doc: 'TLS of the agent listener. What the files hold may change at any time.',
    unset: 'plain',
  })
  tls?: TlsConfig;

  @Text({
    atStart: true,
    doc: 'File with one join token per line; agents present one of these, or one of `llmgw ctl tokens`, when they connect.',
    unset: 'agents need none',
  })
  joinTokensFile?: string;

  @Toggle({
    atStart: true,
    doc: 'Whether agents need a join token, also without a file: one made with `llmgw ctl tokens create --kind join`.',
  })
  joinTokensRequired = false;
}

export class AuthConfig {
  @Nested(() => ApiKeysConfig, { doc: 'Clients.' })
  apiKeys = new ApiKeysConfig();

  @Nested(() => AdminAuthConfig, { doc: 'Operators.' })
  admin = new AdminAuthConfig();

  @Nested(() => AgentsAuthConfig, { doc: 'Agents.' })
  agents = new AgentsAuthConfig();
}
