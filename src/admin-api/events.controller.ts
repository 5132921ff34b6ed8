import { type BeforeApplicationShutdown, Controller, Get, Headers, Inject, Query, Res } from '@nestjs/common';
import { Type } from 'class-transformer';
import { IsIn, IsInt, IsOptional, IsString, Max, Min } from 'class-validator';
import type { FastifyReply } from 'fastify';
import { EVENT_SUBJECT_KINDS, type EventSubjectKind } from '../events/event.js';
import { EVENT_LOG, EVENTS_MAX, type EventFilter, type EventLog } from '../events/event-log.js';
import { CLOCK, type Clock } from '../shared/clock.js';
import { Doc } from './api-doc.js';
import { LongAnswer } from './event-stream.js';
import { RequireRole } from './roles.js';
import { QuerySwitch } from './validation.js';
import type { ListView } from './views/answers.js';
import type { EventView } from './views/status.js';

/** Past events that a new follower gets first, so that it sees where it is. */
const FOLLOW_TAIL = 20;
const LIST_DEFAULT = 500;

class EventsQuery {
  @QuerySwitch()
  follow = false;

  /** Only events after this sequence. */
  @IsOptional()
  @Type(() => Number)
  @IsInt()
  @Min(0)
  after?: number;

  @IsOptional()
  @Type(() => Number)
  @IsInt()
  @Min(0)
  @Max(EVENTS_MAX)
  limit?: number;

  @IsOptional()
  @IsIn(EVENT_SUBJECT_KINDS)
  kind?: EventSubjectKind;

  @IsOptional()
  @IsString()
  id?: string;

  @IsOptional()
  @IsString()
  type?: string;
}

/** The timeline, as a list or followed live. */
@Controller('admin/v1/events')
@RequireRole('viewer')
export class EventsController implements BeforeApplicationShutdown {
  private readonly followers = new Set<LongAnswer>();

  constructor(
    @Inject(EVENT_LOG) private readonly events: EventLog,
    @Inject(CLOCK) private readonly clock: Clock,
  ) {}

  @Get()
  @Doc({
    summary: 'What happened; with `follow` as server-sent events.',
    returns: 'ClusterEvent',
    list: true,
    alsoAs: ['text/event-stream'],
  })
  list(
    @Query() query: EventsQuery,
    @Headers('last-event-id') lastId: string | undefined,
    @Res({ passthrough: true }) reply: FastifyReply,
  ): ListView<EventView> | undefined {
    const filter = filterOf(query);
    if (!query.follow) return { items: this.events.list({ limit: LIST_DEFAULT, ...filter }) };
    // Where it begins is one thing, what it is about the other: only that is asked of what happens later.
    const { after: _after, ...about } = filter;
    this.follow(about, resumePoint(lastId, query.after), reply);
    return undefined;
  }

  /** A follower would hold the listener's close until it tires. */
  beforeApplicationShutdown(): void {
    for (const follower of this.followers) follower.end();
  }

  private follow(filter: EventFilter, afterSequence: number | undefined, reply: FastifyReply): void {
    const stop = this.events.follow(() => goOn());
    const answer = new LongAnswer(reply, 'text/event-stream; charset=utf-8', this.clock, () => {
      stop();
      this.followers.delete(answer);
    });
    this.followers.add(answer);
    let sent = afterSequence === undefined ? this.beforeTail(filter) : this.events.resumeAfter(afterSequence);
    let waits = false;
    // What a slow reader has not taken yet stays in the timeline; a copy in its buffer would have a bound it can never pass.
    const goOn = (): void => {
      if (waits) return;
      for (const event of this.events.since(sent)) {
        sent = event.sequence;
        if (!this.events.matches(event, filter)) continue;
        waits = !answer.event(event.sequence, event);
        if (waits) return;
      }
    };
    answer.whenDrained(() => {
      waits = false;
      goOn();
    });
    goOn();
    answer.keepAlive();
  }

  /** The sequence after which the last few that a new follower wants lie. */
  private beforeTail(filter: EventFilter): number {
    const [first] = this.events.list({ ...filter, limit: filter.limit ?? FOLLOW_TAIL });
    return first === undefined ? this.events.newest : first.sequence - 1;
  }
}

/** Where a reader wants to go on; its browser knows better than the address it once opened. */
function resumePoint(lastId: string | undefined, after: number | undefined): number | undefined {
  return lastId !== undefined && /^\d{1,15}$/.test(lastId) ? Number(lastId) : after;
}

function filterOf(query: EventsQuery): EventFilter {
  return {
    ...(query.after === undefined ? {} : { after: query.after }),
    ...(query.limit === undefined ? {} : { limit: query.limit }),
    ...(query.kind === undefined ? {} : { kind: query.kind }),
    ...(query.id === undefined ? {} : { id: query.id }),
    ...(query.type === undefined ? {} : { type: query.type }),
  };
}
