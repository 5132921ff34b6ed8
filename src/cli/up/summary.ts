/** What `up` says when it is up. */

export interface UpFacts {
  /** `host:port` as bound. */
  readonly client: string;
  readonly admin: string;
  /** Models that are served, by name. */
  readonly served: readonly string[];
  readonly notServed: readonly string[];
}

/** The text ends with a command that works when it is pasted into a shell. */
export function summary({ client, admin, served, notServed }: UpFacts): string {
  const lines = [
    '',
    'llmgw is up.',
    `  client API  http://${reachable(client)}/v1`,
    `  admin API   http://${reachable(admin)}`,
    `  serving     ${served.length === 0 ? 'nothing yet' : served.join(', ')}`,
    ...(notServed.length === 0
      ? []
      : [`  not served  ${notServed.join(', ')}; \`llmgw ctl explain-placement NAME\` says why`]),
    '',
    'Ctrl-C stops everything. Try it:',
    '',
    curlLine(client, served[0] ?? notServed[0] ?? ''),
  ];
  return `${lines.join('\n')}\n`;
}

function curlLine(client: string, model: string): string {
  const body = JSON.stringify({
    model,
    stream: true,
    messages: [{ role: 'user', content: 'What does a gateway do?' }],
  });
  // In single quotes a shell changes nothing; a quote inside would end them.
  const quoted = `'${body.replaceAll("'", String.raw`'\''`)}'`;
  return `curl -N http://${reachable(client)}/v1/chat/completions -H 'content-type: application/json' -d ${quoted}`;
}

/** An address that stands for every interface is reached over loopback from here. */
function reachable(address: string): string {
  return address.replace(/^0\.0\.0\.0:/, '127.0.0.1:').replace(/^\[::\]:/, '[::1]:');
}
