import { Module, type DynamicModule } from '@nestjs/common';
import { STATE_STORE, type StateStore } from './ports.js';
import { TERM, type Term } from './term.js';

/**
 * The open store for everyone. It is opened before Nest starts and closed after Nest has ended: a damaged state must
 * refuse the start before any port is bound, and the last write of a shutdown must still find it open.
 */
@Module({})
export class StoreModule {
  static register(store: StateStore, term: Term): DynamicModule {
    return {
      module: StoreModule,
      global: true,
      providers: [
        { provide: STATE_STORE, useValue: store },
        { provide: TERM, useValue: term },
      ],
      exports: [STATE_STORE, TERM],
    };
  }
}
