import { Command, Option, SubCommand } from 'nest-commander';
import { Document, isScalar, visit, type Node } from 'yaml';
import { AgentConfig } from '../config/agent-config.js';
import { jsonSchema } from '../config/describe.js';
import { loadAgentConfig, loadServerConfig, type LoadedConfig } from '../config/load.js';
import { ServerConfig } from '../config/server-config.js';
import { maskConfig, originText, shownValues } from '../config/written.js';
import { formatProblem } from '../shared/errors.js';
import { GroupCommand, LlmgwCommand, usageError } from './llmgw-command.js';

interface ConfigOptions {
  readonly config?: string;
  readonly agent?: boolean;
  readonly output?: string;
}

/** Options that `check`, `show` and `schema` share. */
abstract class ConfigSubCommand extends LlmgwCommand {
  @Option({ flags: '--config <file>', description: 'configuration file (YAML); env LLMGW_CONFIG' })
  parseConfig(value: string): string {
    return value;
  }

  @Option({ flags: '--agent', description: "the agent's configuration instead of the server's" })
  parseAgent(): boolean {
    return true;
  }

  protected load(options: ConfigOptions, mayServeNothing: boolean): LoadedConfig<object> {
    const named = options.config ?? process.env['LLMGW_CONFIG'];
    const file = named === undefined || named === '' ? {} : { file: named };
    const sources = { ...file, env: process.env };
    return options.agent === true
      ? loadAgentConfig(sources)
      : loadServerConfig({ ...sources, mayServeNothing });
  }
}

@SubCommand({ name: 'check', description: 'Check a configuration without starting anything.' })
export class ConfigCheckCommand extends ConfigSubCommand {
  override async run(_words: string[], options: ConfigOptions): Promise<void> {
    const { warnings } = this.load(options, false);
    for (const problem of warnings) process.stderr.write(`warning: ${formatProblem(problem)}\n`);
    process.stdout.write('the configuration is valid\n');
  }
}

@SubCommand({
  name: 'show',
  description: 'Print every value in force and where it comes from; secrets are masked.',
})
export class ConfigShowCommand extends ConfigSubCommand {
  @Option({ flags: '-o, --output <format>', description: 'yaml (default) or json' })
  parseOutput(value: string): string {
    return value;
  }

  override async run(_words: string[], options: ConfigOptions): Promise<void> {
    const loaded = this.load(options, true);
    const format = options.output ?? 'yaml';
    if (format === 'json') {
      const origins = shownValues(loaded.config, loaded.origins).map(({ path, origin }) => [
        path,
        originText(origin),
      ]);
      const shown = { config: maskConfig(loaded.config), origins: Object.fromEntries(origins) as unknown };
      process.stdout.write(`${JSON.stringify(shown, null, 2)}\n`);
    } else if (format === 'yaml') process.stdout.write(annotatedYaml(loaded));
    else throw usageError(`unknown output format '${format}'`, 'known are: yaml, json');
  }
}

@SubCommand({ name: 'schema', description: 'Print a JSON Schema for editors.' })
export class ConfigSchemaCommand extends ConfigSubCommand {
  override async run(_words: string[], options: ConfigOptions): Promise<void> {
    const schema =
      options.agent === true
        ? jsonSchema(AgentConfig, 'Configuration of the llmgw agent')
        : jsonSchema(ServerConfig, 'Configuration of the llmgw server');
    process.stdout.write(`${JSON.stringify(schema, null, 2)}\n`);
  }
}

@Command({
  name: 'config',
  description: 'Check, show and describe configurations.',
  subCommands: [ConfigCheckCommand, ConfigShowCommand, ConfigSchemaCommand],
})
export class ConfigCommand extends GroupCommand {}

/** YAML with the origin of each value as a comment behind it. */
function annotatedYaml({ config, origins }: LoadedConfig<object>): string {
  const document = new Document(maskConfig(config));
  const texts = shownValues(config, origins).map(({ origin }) => originText(origin));
  let next = 0;
  const annotate = (node: Node): void => {
    node.comment = ` ${texts[next++] ?? ''}`;
  };
  visit(document, {
    // Leaves come in the same order here and in the list of values.
    Scalar: (key, node) => (key === 'key' ? undefined : annotate(node)),
    Map: (_key, node) => (node.items.length === 0 ? annotate(node) : undefined),
    Seq: (_key, node) => {
      if (node.items.length === 0) annotate(node);
      else if (node.items.every((item) => isScalar(item))) node.flow = false;
    },
  });
  // The printer puts an empty collection and its comment on lines of their own.
  return document.toString({ lineWidth: 0 }).replace(/\n +(\[\]|\{\})\n +(# .*)/g, ' $1 $2');
}
