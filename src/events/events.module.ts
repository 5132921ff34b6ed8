import { Module, type DynamicModule } from '@nestjs/common';
import { CLOCK, type Clock } from '../shared/clock.js';
import { STATE_STORE, type StateStore } from '../store/ports.js';
import { TERM, type Term } from '../store/term.js';
import { EVENT_LOG, EventLog } from './event-log.js';

/** The timeline for everyone who decides or sees something. */
@Module({})
export class EventsModule {
  static register(): DynamicModule {
    return {
      module: EventsModule,
      global: true,
      providers: [
        {
          provide: EVENT_LOG,
          inject: [STATE_STORE, TERM, CLOCK],
          useFactory: (store: StateStore, term: Term, clock: Clock) => new EventLog(store, term, clock),
        },
      ],
      exports: [EVENT_LOG],
    };
  }
}
