import { Controller, Get, Inject, Param, Query, Req, Res } from '@nestjs/common';
import { Type } from 'class-transformer';
import { IsInt, IsOptional, Max, Min } from 'class-validator';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { LogChunk } from '../agent-protocol/messages.js';
import { LOG_SOURCE, type LogQuery, type LogSource } from '../agent-gateway/ports.js';
import { EVENT_LOG, type EventLog } from '../events/event-log.js';
import { CLOCK, type Clock } from '../shared/clock.js';
import { OperatorError } from '../shared/errors.js';
import { Doc } from './api-doc.js';
import { ClusterReader } from './cluster-reader.js';
import { LongAnswer } from './event-stream.js';
import { logPlaces, type LogPlace } from './log-places.js';
import { RequireRole } from './roles.js';
import { QuerySwitch } from './validation.js';
import type { LogView } from './views/status.js';

/** Time an agent has to answer with a log, ms. */
const ANSWER_LIMIT_MS = 10_000;
/** Most of a log kept for one whole answer, bytes; following has no such bound. */
const TEXT_MAX_BYTES = 4 * 1024 * 1024;

class LogsQuery {
  @IsOptional()
  @Type(() => Number)
  @IsInt()
  @Min(0)
  @Max(100_000)
  tail = 200;

  @QuerySwitch()
  follow = false;

  /** The run before the present one. */
  @QuerySwitch()
  previous = false;
}

/** How long the first lines, or the word that there are none, may keep the head of an answer that goes on, ms. */
const FIRST_LINES_MS = 1_000;

/** What an engine printed, fetched from the agent that keeps it. */
@Controller('admin/v1/shards')
@RequireRole('viewer')
export class LogsController {
  constructor(
    @Inject(ClusterReader) private readonly cluster: ClusterReader,
    @Inject(LOG_SOURCE) private readonly logs: LogSource,
    @Inject(EVENT_LOG) private readonly events: EventLog,
    @Inject(CLOCK) private readonly clock: Clock,
  ) {}

  /** A shard by id, or a replica, whose rank 0 is meant. */
  @Get(':id/logs')
  @Doc({
    summary: 'What an engine printed; with `follow` as plain text.',
    returns: 'LogView',
    alsoAs: ['text/plain'],
  })
  async log(
    @Param('id') id: string,
    @Query() query: LogsQuery,
    @Req() request: FastifyRequest,
    @Res({ passthrough: true }) reply: FastifyReply,
  ): Promise<LogView | undefined> {
    const timeline = (replicaId: string) => this.events.list({ kind: 'replica', id: replicaId });
    const places = logPlaces(this.cluster.read(), timeline, id, query.previous);
    const wanted = { tailLines: query.tail, follow: query.follow };
    if (!query.follow) return this.firstOf(places, wanted, request);
    const [{ nodeId, shardId, previous }] = places as readonly [LogPlace];
    await this.follow(nodeId, { ...wanted, shardId, previous }, reply);
    return undefined;
  }

  /** Asks one place after another until one has something. */
  private async firstOf(
    places: readonly LogPlace[],
    wanted: Pick<LogQuery, 'tailLines' | 'follow'>,
    request: FastifyRequest,
  ): Promise<LogView> {
    const problems: OperatorError[] = [];
    for (const { nodeId, shardId, previous } of places) {
      try {
        const text = await this.whole(nodeId, { ...wanted, shardId, previous }, request);
        return { shardId, nodeId, text };
      } catch (error) {
        if (!(error instanceof OperatorError)) throw error;
        problems.push(error);
      }
    }
    throw allInOne(problems, places);
  }

  private async follow(nodeId: string, query: LogQuery, reply: FastifyReply): Promise<void> {
    let answer: LongAnswer | undefined;
    const early: LogChunk[] = [];
    let begun = (): void => {};
    const take = (chunk: LogChunk) => {
      if (answer === undefined) {
        early.push(chunk);
        return begun();
      }
      answer.write(chunk.data);
      // The agent is gone and not the engine: the log goes on, and whoever follows it may ask again.
      if (chunk.error !== undefined) answer.breakOff();
      else if (chunk.end) answer.end();
    };
    const stop = this.logs.openLog(nodeId, query, take) ?? unavailable(nodeId);
    await new Promise<void>((resolve) => {
      const timer = this.clock.setTimer(FIRST_LINES_MS, resolve);
      begun = () => {
        timer.cancel();
        resolve();
      };
    });
    const [first] = early;
    if (first?.error !== undefined) throw noLog(first, first.error);
    if (reply.raw.destroyed) return stop();
    answer = new LongAnswer(reply, 'text/plain; charset=utf-8', this.clock, stop);
    for (const chunk of early) take(chunk);
  }

  private whole(nodeId: string, query: LogQuery, request: FastifyRequest): Promise<string> {
    return new Promise((resolve, reject) => {
      const parts: Uint8Array[] = [];
      let size = 0;
      const done = (finish: () => void) => {
        timer.cancel();
        stop();
        finish();
      };
      const stop =
        this.logs.openLog(nodeId, query, (chunk) => {
          if (size < TEXT_MAX_BYTES) parts.push(chunk.data);
          size += chunk.data.length;
          if (chunk.error !== undefined) done(() => reject(noLog(chunk, chunk.error ?? '')));
          else if (chunk.end) done(() => resolve(Buffer.concat(parts).toString('utf8')));
        }) ?? unavailable(nodeId);
      const timer = this.clock.setTimer(ANSWER_LIMIT_MS, () => {
        done(() => reject(new OperatorError('timed_out', `the agent of ${nodeId} sent no log within 10 s`)));
      });
      request.raw.once('close', () => stop());
    });
  }
}

/** One place's own answer, or what each of several said. */
function allInOne(problems: readonly OperatorError[], places: readonly LogPlace[]): OperatorError {
  const [first] = problems;
  if (first !== undefined && problems.length === 1) return first;
  const said = problems.map((problem, index) => `${places[index]?.nodeId}: ${problem.message}`);
  // An agent that is away may have it: that is another answer than "there is none".
  const away = problems.find(({ code }) => code !== 'not_found');
  return new OperatorError(
    away?.code ?? 'not_found',
    `nobody who ran it has that output: ${said.join('; ')}`,
  );
}

function noLog({ lost }: LogChunk, error: string): OperatorError {
  return new OperatorError(lost === true ? 'conflict' : 'not_found', error);
}

function unavailable(nodeId: string): never {
  throw new OperatorError('conflict', `the agent of ${nodeId} is not connected, and only it has the log`, {
    hint: `llmgw ctl node ${nodeId} shows since when`,
  });
}
