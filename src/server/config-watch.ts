/** Looks after the configuration file and says when it has changed and is whole. */
import { readFileSync, statSync, watch, type FSWatcher } from 'node:fs';
import { basename, dirname } from 'node:path';
import type { ConfigSource } from '../admin-api/config-reload.service.js';
import { FileSettle } from '../config/file-settle.js';
import { MAX_FILE_BYTES, type LoadedConfig } from '../config/load.js';
import type { ServerConfig } from '../config/server-config.js';
import type { Clock, Timer } from '../shared/clock.js';
import type { Logger } from '../shared/logger.js';

/** Network file systems and links to elsewhere tell no watcher, so the file is also looked at this often, ms. */
const LOOK_EVERY_MS = 5_000;
/** Events that come together are looked at together, ms. */
const GATHER_MS = 20;

/** The source with somebody who is told of each reading of the file itself. */
export class ToldSource implements ConfigSource {
  readonly file?: string;
  told: () => void = () => undefined;

  constructor(private readonly inner: ConfigSource) {
    if (inner.file !== undefined) this.file = inner.file;
  }

  load(instead?: { readonly name: string; readonly text: string }): LoadedConfig<ServerConfig> {
    if (instead === undefined) this.told();
    return this.inner.load(instead);
  }
}

export interface ConfigWatchOptions {
  readonly file: string;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Whether changes are wanted at all, asked before each is told. */
  readonly wanted: () => boolean;
  readonly changed: () => void;
}

export class ConfigWatch {
  private readonly settle: FileSettle;
  private watcher: FSWatcher | undefined;
  private timer: Timer | undefined;
  private dueMs = Infinity;
  private open = true;

  constructor(private readonly options: ConfigWatchOptions) {
    this.settle = new FileSettle(contentOf(options.file));
    this.watchFolder();
    this.lookIn(LOOK_EVERY_MS);
  }

  /** To be called when the file is read for another reason than a look of ours. */
  readElsewhere(): void {
    this.settle.readElsewhere(contentOf(this.options.file));
  }

  close(): void {
    this.open = false;
    this.watcher?.close();
    this.timer?.cancel();
  }

  /** The folder, not the file: an editor that replaces the file would leave a watcher of the old one behind. */
  private watchFolder(): void {
    const { file } = this.options;
    const name = basename(file);
    try {
      this.watcher = watch(dirname(file), (_event, changed) => {
        // Mounted volumes swap a link named `..data`, whatever the file is called.
        if (changed === null || changed === name || changed.startsWith('..')) this.lookIn(GATHER_MS);
      });
      this.watcher.on('error', (error) => this.notWatched(error));
      this.watcher.unref();
    } catch (error) {
      this.notWatched(error);
    }
  }

  private notWatched(error: unknown): void {
    this.watcher?.close();
    this.watcher = undefined;
    const fields = { file: this.options.file, err: error, everyMs: LOOK_EVERY_MS };
    this.options.logger.warn(
      fields,
      'the configuration file cannot be watched; it is looked at now and then',
    );
  }

  private lookIn(ms: number): void {
    const { clock } = this.options;
    const atMs = clock.monotonicMs() + ms;
    if (!this.open || atMs >= this.dueMs) return;
    this.timer?.cancel();
    this.dueMs = atMs;
    this.timer = clock.setTimer(ms, () => this.look());
  }

  private look(): void {
    const { clock, file, wanted, changed } = this.options;
    this.dueMs = Infinity;
    if (!this.open) return;
    const settled = this.settle.look(contentOf(file), clock.monotonicMs());
    if (settled.kind === 'take' && wanted()) changed();
    this.lookIn(settled.kind === 'wait' ? settled.ms : LOOK_EVERY_MS);
  }
}

/** What the file holds; undefined while there is none that could be read. */
function contentOf(file: string): string | undefined {
  try {
    const { size } = statSync(file);
    // Refused anyway; telling one such file from another is not worth reading it.
    if (size > MAX_FILE_BYTES) return `${size} bytes`;
    return readFileSync(file, 'utf8');
  } catch {
    return undefined;
  }
}
