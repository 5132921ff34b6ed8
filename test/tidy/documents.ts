/** The documents that are written from the code. */
import { AgentConfig } from '../../src/config/agent-config.js';
import { settingsTable } from '../../src/config/describe.js';
import { ServerConfig } from '../../src/config/server-config.js';
import { ADMIN_ERRORS, API_ERRORS, EXIT } from '../../src/shared/errors.js';
import { isSource, projectFiles, read } from './repository.js';
import { EXIT_MEANINGS, WRITTEN, table } from './document-parts.js';
import { metricsOf } from './metric-list.js';

export function configurationDocument(): string {
  return `# Configuration

${WRITTEN}

A file is YAML 1.2 with keys in camelCase. Every value can come from four places; the first that has it wins: a flag, an environment variable, the file, the default. An empty variable counts as not set. Only the variables named below are read. \`llmgw config show\` prints every value in force and where it comes from, \`llmgw config check\` checks a file without starting anything, \`llmgw config schema\` prints a JSON Schema for editors; with \`--agent\` they do the same for the agent's file (a file of the other kind is told as such, in the first line).

Durations need a unit: \`500ms\`, \`30s\`, \`1m30s\`, \`2h\`, \`7d\`. Where \`0s\` is the default or named below, it switches the thing off. Sizes are \`KiB MiB GiB TiB\` (powers of 1024) or \`KB MB GB TB\` (powers of 1000), shares are percentages. Names must be text: a number, a boolean or a date as a name needs quotes. Addresses are \`host:port\`, with IPv6 in brackets. Relative paths start where the program is started.

Four variables belong to the command line and are no settings: \`LLMGW_CONFIG\` names the file where \`--config\` does not, \`LLMGW_ADMIN_URL\` and \`LLMGW_TOKEN_FILE\` are \`--server\` and \`--token-file\` of \`llmgw ctl\`, and \`LLMGW_DEBUG=1\` prints stack traces of errors.

Unknown keys, duplicates, wrong types and clashes are errors, all told at once with file, line, column and path.

## Server

\`llmgw server --config FILE\`; flags: \`--listen\`, \`--admin-listen\`, \`--agent-listen\`, \`--state-dir\` and, for static endpoints, \`--endpoint id=URL=model[,model]\` as often as needed. An endpoint of the command line with the id of one in the file replaces it.

The admin and agent listeners are refused beyond loopback without authentication and TLS, unless \`insecure: true\` is written in the file.

${settingsTable(ServerConfig)}

## Agent

\`llmgw agent --config FILE\`; flags: \`--server\`, \`--node-id\`, \`--label KEY=VALUE\` as often as needed, \`--state-dir\`, \`--join-token-file\`.

${settingsTable(AgentConfig)}
`;
}

export function errorsDocument(): string {
  const api = Object.entries(API_ERRORS).map(([code, { status, type, when }]) => [
    `\`${code}\``,
    String(status),
    `\`${type}\``,
    when,
  ]);
  const admin = Object.entries(ADMIN_ERRORS).map(([code, { status, exit, when }]) => [
    `\`${code}\``,
    status === 0 ? '' : String(status),
    String(exit),
    when,
  ]);
  const exits = Object.entries(EXIT).map(([name, code]) => [
    String(code),
    EXIT_MEANINGS[name as keyof typeof EXIT],
  ]);
  return `# Errors

${WRITTEN}

## Client API

Every error the gateway makes has the form \`{"error": {"message", "type", "param", "code"}}\`. With 429 and 503 comes a \`Retry-After\` in whole seconds. Once an answer has begun, an error is one \`data: {"error": ...}\` event at the end of the stream, without \`[DONE]\`. Errors of an engine are passed on with their status and body; a body in which a client of the route would not find the message (plain text, or the flat shapes of some engines) is put into this form, with what the engine said beside it. Anthropic routes get the same in Anthropic's form.

A stream has begun with the first event that is passed on, be it only the role; comments and Anthropic's pings are none. An error as the first event becomes a real status: the number in it, or what it is called (\`overloaded_error\` is 529, \`rate_limit_exceeded\` 429), else 500. A stream is over with its \`[DONE]\`, \`message_stop\` or \`response.completed\`, and what an engine sends behind that is dropped. A JSON body that ends with its connection, in the middle, cuts the client's connection too, so that nothing short looks whole.

\`x-should-retry: false\` comes with an error that a client's SDK would try again in vain: every replica was asked, or nobody else was on purpose (a prompt two engines broke on, one too long to be computed twice, an engine's 501 or redirect).

${table(['Code', 'Status', 'Type', 'When'], api)}

## Admin API and command line

\`{"error": {"code", "message", "field", "hint"}}\`; \`llmgw ... -o json\` prints the same object on standard error.

${table(['Code', 'Status', 'Exit code', 'When'], admin)}

## Exit codes

${table(['Code', 'Meaning'], exits)}
`;
}

export function metricsDocument(): string {
  const files = projectFiles().filter((path) => isSource(path) && path.endsWith('.metrics.ts'));
  const rows = metricsOf(files.map(read)).map(({ name, type, labels, help }) => [
    `\`${name}\``,
    type,
    labels.map((label) => `\`${label}\``).join(' '),
    help,
  ]);
  return `# Metrics

${WRITTEN}

\`GET /metrics\` on the admin listener, in Prometheus' text format. Units are base units (seconds, bytes, tokens). No label can be invented by a client: a model that is not configured is counted as \`_unknown\`. Series of things that are gone disappear.

${table(['Metric', 'Type', 'Labels', 'Meaning'], rows)}
`;
}
