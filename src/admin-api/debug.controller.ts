import { Session } from 'node:inspector/promises';
import { getHeapSnapshot } from 'node:v8';
import { Controller, Get, Inject, Query, Req, Res, StreamableFile, UseGuards } from '@nestjs/common';
import { Type } from 'class-transformer';
import { IsInt, IsOptional, Max, Min } from 'class-validator';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { ProcessMetrics, type EventLoopDelay } from '../metrics/process.metrics.js';
import { CLOCK, type Clock } from '../shared/clock.js';
import { OperatorError } from '../shared/errors.js';
import { Doc } from './api-doc.js';
import { DebugGuard } from './debug.guard.js';
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
@UseGuards(DebugGuard)
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
  @Doc({ summary: 'A V8 CPU profile.', foreign: 'A `.cpuprofile` of V8.' })
  async profile(
    @Query() query: ProfileQuery,
    @Req() request: FastifyRequest,
    @Res({ passthrough: true }) reply: FastifyReply,
  ): Promise<string> {
    const release = this.occupy();
    const session = new Session();
    try {
      session.connect();
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
      release();
    }
  }

  /** A heap snapshot. It holds whatever the process holds, prompts of running requests included. */
  @Get('pprof/heap')
  @Doc({ summary: 'A V8 heap snapshot.', foreign: 'A `.heapsnapshot` of V8.' })
  heap(@Res({ passthrough: true }) reply: FastifyReply): StreamableFile {
    const release = this.occupy();
    try {
      const snapshot = getHeapSnapshot();
      // Held until it is read or its reader is gone: a second one meanwhile would double what is in memory.
      snapshot.once('close', release);
      void reply.header('content-disposition', 'attachment; filename="llmgw.heapsnapshot"');
      return new StreamableFile(snapshot, { type: 'application/json' });
    } catch (error) {
      release();
      throw error;
    }
  }

  /** One at a time: each slows the process down, and two would measure each other. */
  private occupy(): () => void {
    if (this.busy) throw new OperatorError('conflict', 'another profile is being taken');
    this.busy = true;
    return () => (this.busy = false);
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
