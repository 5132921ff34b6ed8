/**
 * nest-commander's decorators for the commands that must start fast, without loading Nest: its own ones sit in a module
 * that imports all of @nestjs/common, which takes longer than everything `ctl` does. They store the same metadata under
 * nest-commander's own keys, so nest-commander runs these commands like any other; a test holds that true.
 */
import 'reflect-metadata';
import type { CommandMetadata, OptionMetadata } from 'nest-commander';
import { CommandMeta, OptionMeta, SubCommandMeta } from 'nest-commander/src/constants.js';

export { CommandRunner } from 'nest-commander/src/command-runner.interface.js';

const onClass =
  (key: string) =>
  (metadata: CommandMetadata): ClassDecorator =>
  (target) =>
    Reflect.defineMetadata(key, metadata, target);

export const Command = onClass(CommandMeta);
export const SubCommand = onClass(SubCommandMeta);

export const Option =
  (metadata: OptionMetadata): MethodDecorator =>
  (_target, _name, descriptor) =>
    Reflect.defineMetadata(OptionMeta, metadata, descriptor.value as object);
