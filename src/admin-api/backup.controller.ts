import { Controller, Get, Inject, Req, Res, StreamableFile } from '@nestjs/common';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { CLOCK, type Clock } from '../shared/clock.js';
import { OperatorError } from '../shared/errors.js';
import { openStateCopy } from '../store/online-backup.js';
import { STATE_STORE, type StateStore } from '../store/ports.js';
import { Doc } from './api-doc.js';
import { AuditLog } from './audit-log.js';
import { callerOf } from './role.guard.js';
import { RequireRole } from './roles.js';
import { SERVER_FACTS, type ServerFacts } from './server-facts.js';

/** The whole state as one file. It goes to whoever asks and never to a path of the server's machine that a caller names. */
@Controller('admin/v1')
export class BackupController {
  /** A copy takes as much disk again as the state: one at a time. */
  private busy = false;

  constructor(
    @Inject(STATE_STORE) private readonly store: StateStore,
    @Inject(SERVER_FACTS) private readonly facts: ServerFacts,
    @Inject(AuditLog) private readonly audit: AuditLog,
    @Inject(CLOCK) private readonly clock: Clock,
  ) {}

  /** For admins only: hashes of keys and tokens are in it. */
  @Get('backup')
  @Doc({
    summary: 'A consistent copy of the state; `content-digest` has its checksum.',
    alsoAs: ['application/vnd.sqlite3'],
  })
  @RequireRole('admin')
  async backup(
    @Req() request: FastifyRequest,
    @Res({ passthrough: true }) reply: FastifyReply,
  ): Promise<StreamableFile> {
    const { stateDir } = this.store;
    if (stateDir === undefined) {
      throw new OperatorError(
        'conflict',
        'this server only routes and keeps no state; nothing is to be backed up',
      );
    }
    if (this.busy) {
      throw new OperatorError('conflict', 'a backup is being made already', { hint: 'wait for it to end' });
    }
    this.busy = true;
    try {
      const madeAt = new Date(this.clock.wallMs()).toISOString();
      const copy = await openStateCopy(stateDir, { madeAt, build: this.facts.version });
      // `end` comes before the caller has the last byte, who may then ask again; a caller who leaves brings only `close`.
      for (const over of ['end', 'close']) copy.stream.once(over, () => (this.busy = false));
      this.audit.performed({ caller: callerOf(request), action: 'backup', target: 'state' });
      void reply.header('content-digest', `sha-256=:${copy.sha256}:`);
      return new StreamableFile(copy.stream, { type: 'application/vnd.sqlite3', length: copy.bytes });
    } catch (error) {
      this.busy = false;
      throw error;
    }
  }
}
