import { Controller, Get, Inject, Param, Query, Req, Res } from '@nestjs/common';
import { Transform, Type } from 'class-transformer';
import { IsBoolean, IsInt, IsOptional, Max, Min } from 'class-validator';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { LogChunk } from '../agent-protocol/messages.js';
import { LOG_SOURCE, type LogSource } from '../agent-gateway/ports.js';
import { CLOCK, type Clock } from '../shared/clock.js';
import { OperatorError } from '../shared/errors.js';
import { Doc } from './api-doc.js';
import { ClusterReader, type ClusterReading } from './cluster-reader.js';
import { LongAnswer } from './event-stream.js';
import { notFound } from './find.js';
import { RequireRole } from './roles.js';
import type { LogView } from './views.js';

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

  @IsOptional()
  @Transform(({ value }) => value === '' || value === 'true')
  @IsBoolean()
  follow = false;

  /** The run before the present one. */
  @IsOptional()
  @Transform(({ value }) => value === '' || value === 'true')
  @IsBoolean()
  previous = false;
}

/** What an engine printed, fetched from the agent that keeps it. */
@Controller('admin/v1/shards')
@RequireRole('viewer')
export class LogsController {
  constructor(
    @Inject(ClusterReader) private readonly cluster: ClusterReader,
    @Inject(LOG_SOURCE) private readonly logs: LogSource,
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
    const { nodeId, shardId } = shardOf(this.cluster.read(), id);
    const wanted = { shardId, tailLines: query.tail, follow: query.follow, previous: query.previous };
    if (!query.follow) {
      const text = await this.whole(nodeId, wanted, request);
      return { shardId, text };
    }
    this.follow(nodeId, wanted, reply);
    return undefined;
  }

  private follow(nodeId: string, query: Parameters<LogSource['openLog']>[1], reply: FastifyReply): void {
    let answer: LongAnswer | undefined;
    const early: LogChunk[] = [];
    const take = (chunk: LogChunk) => {
      if (answer === undefined) return void early.push(chunk);
      answer.write(chunk.data);
      if (chunk.error !== undefined) answer.write(`\n[${chunk.error}]\n`);
      if (chunk.end) answer.end();
    };
    const stop = this.logs.openLog(nodeId, query, take) ?? unavailable(nodeId);
    answer = new LongAnswer(reply, 'text/plain; charset=utf-8', this.clock, stop);
    for (const chunk of early) take(chunk);
  }

  private whole(
    nodeId: string,
    query: Parameters<LogSource['openLog']>[1],
    request: FastifyRequest,
  ): Promise<string> {
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
          if (chunk.error !== undefined)
            done(() => reject(new OperatorError('not_found', chunk.error ?? '')));
          else if (chunk.end) done(() => resolve(Buffer.concat(parts).toString('utf8')));
        }) ?? unavailable(nodeId);
      const timer = this.clock.setTimer(ANSWER_LIMIT_MS, () => {
        done(() => reject(new OperatorError('timed_out', `the agent of ${nodeId} sent no log within 10 s`)));
      });
      request.raw.once('close', () => stop());
    });
  }
}

function unavailable(nodeId: string): never {
  throw new OperatorError('conflict', `the agent of ${nodeId} is not connected, and only it has the log`, {
    hint: `llmgw ctl node ${nodeId} shows since when`,
  });
}

/** Where a shard is: by record, or because its node reports it. */
function shardOf(reading: ClusterReading, id: string): { readonly nodeId: string; readonly shardId: string } {
  const decided = reading.replicas.flatMap(({ record }) => record.shards);
  const reported = reading.snapshot.nodes.flatMap((node) =>
    node.shards.map((shard) => ({ shardId: shard.shardId, nodeId: node.id })),
  );
  const all = [...decided, ...reported];
  const exact = all.find((shard) => shard.shardId === id);
  if (exact !== undefined) return exact;
  const replica = reading.replicas.find(({ record }) => record.id === id || record.id.startsWith(id));
  const head = replica?.record.shards.find((shard) => shard.rank === 0);
  if (head !== undefined) return head;
  const beginning = all.find((shard) => shard.shardId.startsWith(id));
  if (beginning !== undefined) return beginning;
  throw notFound('shard', id, [...new Set(all.map((shard) => shard.shardId))]);
}
