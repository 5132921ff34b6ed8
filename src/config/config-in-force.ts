/**
 * The configuration a running server obeys. Readers hold one object for the whole run, and every read of it sees the latest
 * reload, so that nobody can go on with a copy of what was true at the start.
 */
import { freeze } from './load.js';
import { ServerConfig } from './server-config.js';
import { settingsOf, type SettingsClass } from './setting.js';

export class ConfigInForce {
  /** Reads like a frozen {@link ServerConfig}; each top-level key gives the value now in force. */
  readonly view: ServerConfig;
  private config: ServerConfig;

  constructor(config: ServerConfig) {
    this.config = config;
    const properties = [...settingsOf(ServerConfig).keys()].map((key) => [
      key,
      { enumerable: true, get: () => this.config[key as keyof ServerConfig] },
    ]);
    this.view = Object.freeze(
      Object.create(
        ServerConfig.prototype as object,
        Object.fromEntries(properties) as PropertyDescriptorMap,
      ) as ServerConfig,
    );
  }

  /** The frozen configuration behind the view: unlike that it stays what it is. */
  current(): ServerConfig {
    return this.config;
  }

  replace(config: ServerConfig): void {
    this.config = config;
  }
}

/** `next` with every setting that only a start can change as `present` has it. */
export function keepAtStart(next: ServerConfig, present: ServerConfig): ServerConfig {
  return freeze(keepIn(ServerConfig, next, present));
}

function keepIn<T extends object>(type: SettingsClass, next: T, present: T): T {
  const kept = Object.assign(Object.create(Object.getPrototypeOf(next) as object) as T, next);
  const slots = kept as Record<string, unknown>;
  for (const [key, { atStart, shape }] of settingsOf(type)) {
    const [is, was] = [slots[key], (present as Record<string, unknown>)[key]];
    if (atStart === true && was === undefined) delete slots[key];
    else if (atStart === true) slots[key] = was;
    else if (shape.shape === 'object' && isObject(is) && isObject(was))
      slots[key] = keepIn(shape.type(), is, was);
  }
  return kept;
}

const isObject = (value: unknown): value is object => typeof value === 'object' && value !== null;
