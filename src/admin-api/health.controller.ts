import { Controller, Get, Inject, Query, Res } from '@nestjs/common';
import type { FastifyReply } from 'fastify';
import { Doc } from './api-doc.js';
import { READINESS, type Readiness } from './readiness.js';
import { RequireRole } from './roles.js';

/** Probes. Machines look at the status only; `?verbose` is for people. */
@Controller()
@RequireRole('open')
export class HealthController {
  constructor(@Inject(READINESS) private readonly readiness: Readiness) {}

  /** The process answers: nothing more. A restart would not help against anything else. */
  @Get('livez')
  @Doc({ summary: 'Whether the process answers.', alsoAs: ['text/plain'] })
  livez(@Res({ passthrough: true }) reply: FastifyReply): string {
    void reply.type('text/plain; charset=utf-8');
    return 'ok\n';
  }

  @Get(['readyz', 'healthz'])
  @Doc({
    summary: 'Whether the server should get traffic.',
    alsoAs: ['text/plain'],
    alsoWith: { 503: 'It should not.' },
  })
  readyz(
    @Res({ passthrough: true }) reply: FastifyReply,
    @Query('verbose') verbose: string | undefined,
    @Query('exclude') exclude: string | string[] | undefined,
  ): string {
    const excluded = new Set([exclude ?? []].flat());
    const results = this.readiness.results().filter((result) => !excluded.has(result.name));
    const ready = results.every((result) => result.ok);
    void reply.status(ready ? 200 : 503).type('text/plain; charset=utf-8');
    if (verbose === undefined) return ready ? 'ok\n' : 'not ready\n';
    const lines = results.map(({ name, ok, reason, detail }) =>
      ok ? `[+] ${name} ok${detail === undefined ? '' : `: ${detail}`}` : `[-] ${name}: ${reason ?? ''}`,
    );
    return `${lines.join('\n')}\n${ready ? 'ready' : 'not ready'}\n`;
  }
}
