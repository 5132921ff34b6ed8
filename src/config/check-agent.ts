/** What no single value of the agent's file can get wrong. */
import { isLinkLocalHost } from './address.js';
import type { AgentConfig } from './agent-config.js';
import type { Findings } from './settings-reader.js';
import { problemAt } from './validate-settings.js';

export function checkAgent(config: AgentConfig, findings: Findings): void {
  const problem = (path: string, message: string): void => {
    findings.problems.push(problemAt(findings, path, message));
  };
  if (config.address !== undefined && isLinkLocalHost(config.address)) {
    problem('address', `the link-local address ${config.address} is refused`);
  }
  const { tls, gpus } = config;
  if (tls !== undefined && (tls.certFile === undefined) !== (tls.keyFile === undefined)) {
    problem('tls', 'certFile and keyFile belong together: give both or none');
  }
  if (gpus.driver === 'static' && gpus.static.length === 0) {
    problem('gpus.static', 'driver static needs at least one device');
  }
  if (gpus.driver !== 'static' && gpus.static.length > 0) {
    problem('gpus.driver', `devices are declared but driver is ${gpus.driver}; expected static`);
  }
  const seen = new Set<string>();
  gpus.static.forEach(({ uuid }, index) => {
    if (seen.has(uuid)) problem(`gpus.static[${index}].uuid`, `"${uuid}" is declared twice`);
    seen.add(uuid);
  });
}
