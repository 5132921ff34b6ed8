import { type BeforeApplicationShutdown, Controller, Get, Headers, Inject, Query, Res } from '@nestjs/common';
import { Transform, Type } from 'class-transformer';
import { IsBoolean, IsIn, IsInt, IsOptional, IsString, Max, Min } from 'class-validator';
import type { FastifyReply } from 'fastify';
import { EVENT_SUBJECT_KINDS, type EventSubjectKind } from '../events/event.js';
import { EVENT_LOG, EVENTS_MAX, type EventFilter, type EventLog } from '../events/event-log.js';
import { CLOCK, type Clock } from '../shared/clock.js';
import { Doc } from './api-doc.js';
import { LongAnswer } from './event-stream.js';
import { RequireRole } from './roles.js';
import type { ListView } from './views/answers.js';
import type { EventView } from './views/status.js';

/** Past events that a new follower gets first, so that it sees where it is. */
const FOLLOW_TAIL = 20;
const LIST_DEFAULT = 500;

class EventsQuery {
  @IsOptional()
  @Transform(({ value }) => value === '' || value === 'true')
  @IsBoolean()
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
    this.follow(filter, Number(lastId ?? query.after ?? NaN), reply);
    return undefined;
  }

  /** A follower would hold the listener's close until it tires. */
  beforeApplicationShutdown(): void {
    for (const follower of this.followers) follower.end();
  }

  private follow(filter: EventFilter, afterSequence: number, reply: FastifyReply): void {
    const stop = this.events.follow((event) => {
      if (matches(event)) answer.event(event.sequence, event);
    });
    const answer = new LongAnswer(reply, 'text/event-stream; charset=utf-8', this.clock, () => {
      stop();
      this.followers.delete(answer);
    });
    this.followers.add(answer);
    const matches = (event: EventView) => this.events.matches(event, filter);
    const missed = Number.isNaN(afterSequence)
      ? this.events.list({ ...filter, limit: filter.limit ?? FOLLOW_TAIL })
      : this.events.list({ ...filter, after: afterSequence });
    for (const event of missed) answer.event(event.sequence, event);
    answer.keepAlive();
  }
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
