import { Session } from 'node:inspector/promises';
import { getHeapSnapshot } from 'node:v8';
import { Controller, Get, Inject, Query, Req, Res, StreamableFile } from '@nestjs/common';
import { Type } from 'class-transformer';
import { IsInt, IsOptional, Max, Min } from 'class-validator';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { ProcessMetrics, type EventLoopDelay } from '../metrics/process.metrics.js';
import { CLOCK, type Clock } from '../shared/clock.js';
import { OperatorError } from '../shared/errors.js';
import { Doc } from './api-doc.js';
import { RequireRole } from './roles.js';

class ProfileQuery {
  @IsOptional()
  @Type(() => Number)
  @IsInt()
  @Min(1)
  @Max(120)
  seconds = 10;
}

/** For whoever must find out why the process is slow or large. A profile costs time and a heap snapshot stops the world. */
@Controller('debug')
@RequireRole('admin')
export class DebugController {
  private busy = false;

  constructor(
    @Inject(ProcessMetrics) private readonly process: ProcessMetrics,
    @Inject(CLOCK) private readonly clock: Clock,
  ) {}

  @Get('eventloop')
  @Doc({ summary: 'Delay of the event loop since the last scrape.', returns: 'EventLoopDelay' })
  eventLoop(): EventLoopDelay {
    return this.process.eventLoopDelay();
  }

  /** A V8 CPU profile; Chrome's developer tools and speedscope read it. */
  @Get('pprof/profile')
  @Doc({ summary: 'A V8 CPU profile.' })
  async profile(
    @Query() query: ProfileQuery,
    @Req() request: FastifyRequest,
    @Res({ passthrough: true }) reply: FastifyReply,
  ): Promise<string> {
    return this.alone(async () => {
      const session = new Session();
      session.connect();
      try {
        await session.post('Profiler.enable');
        await session.post('Profiler.start');
        await this.wait(query.seconds * 1_000, request);
        const { profile } = await session.post('Profiler.stop');
        void reply
          .type('application/json')
          .header('content-disposition', 'attachment; filename="llmgw.cpuprofile"');
        return JSON.stringify(profile);
      } finally {
        session.disconnect();
      }
    });
  }

  /** A heap snapshot. It holds whatever the process holds, prompts of running requests included. */
  @Get('pprof/heap')
  @Doc({ summary: 'A V8 heap snapshot.' })
  async heap(@Res({ passthrough: true }) reply: FastifyReply): Promise<StreamableFile> {
    return this.alone(() => {
      void reply.header('content-disposition', 'attachment; filename="llmgw.heapsnapshot"');
      return Promise.resolve(new StreamableFile(getHeapSnapshot(), { type: 'application/json' }));
    });
  }

  private async alone<T>(work: () => Promise<T>): Promise<T> {
    if (this.busy) throw new OperatorError('conflict', 'another profile is being taken');
    this.busy = true;
    try {
      return await work();
    } finally {
      this.busy = false;
    }
  }

  private wait(delayMs: number, request: FastifyRequest): Promise<void> {
    return new Promise((resolve) => {
      const timer = this.clock.setTimer(delayMs, resolve);
      request.raw.once('close', () => {
        timer.cancel();
        resolve();
      });
    });
  }
}
