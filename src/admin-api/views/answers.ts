/**
 * The objects of the admin API, in this folder by their nouns. `ctl -o json` prints exactly these.
 *
 * Times of day are ISO 8601 strings named `...At` or `...Since`; lengths of time are milliseconds; sizes are bytes.
 * A field that is absent is unknown or does not apply; it never stands for zero.
 *
 * Here: what answers of all kinds have in common.
 */
import type { AdminErrorCode, ConfigProblem } from '../../shared/errors.js';

/** Every list of the API. */
export interface ListView<T> {
  readonly items: readonly T[];
}

/** Body of every failed call. */
export interface ErrorView {
  readonly error: {
    readonly code: AdminErrorCode;
    readonly message: string;
    readonly field?: string;
    readonly hint?: string;
    /** Everything that is wrong with a configuration, for `invalid_configuration`. */
    readonly problems?: readonly ConfigProblem[];
  };
}

/** Answer of `DELETE nodes/{id}`. */
export interface RemovedView {
  readonly removed: string;
}
