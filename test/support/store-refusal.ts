import { StoreError } from '../../src/store/ports.js';

/** The StoreError that `run` throws. */
export function storeRefusal(run: () => unknown): StoreError {
  try {
    run();
  } catch (error) {
    if (error instanceof StoreError) return error;
    throw error;
  }
  throw new Error('nothing was refused');
}
