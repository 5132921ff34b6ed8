/**
 * Runs `ctl` without Nest's container: the same nest-commander classes, built into the same commander program from the
 * metadata their decorators leave. A test holds the two ways equal. Loading the container would cost more than
 * everything `ctl` does.
 */
import { createRequire } from 'node:module';
import { CommandMeta, OptionMeta, SubCommandMeta } from 'nest-commander/src/constants.js';
import type { CommandRunner } from './nest-commander-lean.js';
import { CtlCommand } from './ctl/ctl.command.js';
import { setUpRoot, type CommanderCommand } from './llmgw-command.js';

type CommandClass = new () => CommandRunner;

/** What `@Command` and `@SubCommand` store on a class. */
interface CommandMetadata {
  readonly name: string;
  readonly description?: string;
  readonly arguments?: string;
  readonly argsDescription?: Readonly<Record<string, string>>;
  readonly subCommands?: readonly CommandClass[];
}

/** What `@Option` stores on a method. */
interface OptionMetadata {
  readonly flags: string;
  readonly description?: string;
  readonly defaultValue?: string | boolean | number;
}

interface CommanderModule {
  readonly Command: new (name?: string) => CommanderCommand;
  readonly Option: new (flags: string, description?: string) => Parameters<CommanderCommand['addOption']>[0];
}

// The very copy that nest-commander uses: another version next to it would read the same options differently.
const require = createRequire(import.meta.url);
const commander = createRequire(require.resolve('nest-commander'))('commander') as CommanderModule;

/** Runs `llmgw <argv>`, of which the first word is `ctl`; throws what the command throws. */
export async function runCtl(argv: readonly string[]): Promise<void> {
  await buildCtlProgram().parseAsync([...argv], { from: 'user' });
}

/** The root command with `ctl` and everything below it. */
export function buildCtlProgram(): CommanderCommand {
  const root = new commander.Command();
  setUpRoot(root);
  root.addCommand(build(CtlCommand, CommandMeta));
  return root;
}

function build(type: CommandClass, metaKey: string): CommanderCommand {
  const meta = Reflect.getMetadata(metaKey, type) as CommandMetadata;
  const command = new commander.Command(meta.name);
  const instance = new type();
  instance.setCommand(command);
  for (const name of meta.arguments?.split(' ') ?? []) {
    command.argument(name, meta.argsDescription?.[name.replace(/[<>[\].]/g, '')] ?? '');
  }
  command.description(meta.description ?? '');
  for (const [option, parse] of optionsOf(instance)) {
    const made = new commander.Option(option.flags, option.description).default(option.defaultValue);
    command.addOption(made.argParser(parse));
  }
  command.action(() => instance.run(command.args, command.opts()));
  for (const sub of meta.subCommands ?? []) command.addCommand(build(sub, SubCommandMeta));
  return command;
}

type OptionParser = (value: string, previous: unknown) => unknown;

/** Options by the methods that parse them, the class's own before inherited ones. */
function optionsOf(instance: CommandRunner): [OptionMetadata, OptionParser][] {
  const found = new Map<string, [OptionMetadata, OptionParser]>();
  let prototype: unknown = Object.getPrototypeOf(instance);
  while (typeof prototype === 'object' && prototype !== null && prototype !== Object.prototype) {
    for (const name of Object.getOwnPropertyNames(prototype)) {
      // By descriptor: reading a getter on a prototype would run it without its instance.
      const method: unknown = Object.getOwnPropertyDescriptor(prototype, name)?.value;
      if (typeof method !== 'function' || found.has(name)) continue;
      const meta = Reflect.getMetadata(OptionMeta, method) as OptionMetadata | undefined;
      if (meta !== undefined) found.set(name, [meta, method.bind(instance) as OptionParser]);
    }
    prototype = Object.getPrototypeOf(prototype);
  }
  return [...found.values()];
}
