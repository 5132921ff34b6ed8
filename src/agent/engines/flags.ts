/** Looks into a profile's arguments: what the user already says there, the driver does not say again. */
import { flagName } from '../../domain/catalog/engine-flags.js';

/** True when one of the flags is given in any spelling. */
export function hasFlag(args: readonly string[], ...flags: readonly string[]): boolean {
  return args.some((arg) => flags.includes(flagName(arg) ?? ''));
}

/** The whole number given for the first of the flags that is there; undefined when none is, or it is no number. */
export function numberFlag(args: readonly string[], ...flags: readonly string[]): number | undefined {
  for (const [index, arg] of args.entries()) {
    if (!flags.includes(flagName(arg) ?? '')) continue;
    const at = arg.indexOf('=');
    const text = at >= 0 ? arg.slice(at + 1) : args[index + 1];
    return text !== undefined && /^\d+$/.test(text) ? Number(text) : undefined;
  }
  return undefined;
}
