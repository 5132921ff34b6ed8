import { Inject, Injectable, Optional, type OnApplicationBootstrap } from '@nestjs/common';
import { CatalogService, type OverruledScale } from '../catalog/catalog.service.js';
import { exposureProblems } from '../config/check-server.js';
import { diffSettings } from '../config/config-diff.js';
import { keepAtStart, type ConfigInForce } from '../config/config-in-force.js';
import type { LoadedConfig } from '../config/load.js';
import type { ServerConfig } from '../config/server-config.js';
import { duration } from '../domain/placement/reasons.js';
import type { EventInput } from '../events/event-log.js';
import { ReconcilerService } from '../reconciler/reconciler.service.js';
import { RouterService } from '../router/router.service.js';
import type { Clock } from '../shared/clock.js';
import {
  ConfigError,
  errorChain,
  formatProblem,
  OperatorError,
  type ConfigProblem,
} from '../shared/errors.js';
import { setLogLevel, type Logger } from '../shared/logger.js';
import { AuditLog, type AuditEntry } from './audit-log.js';
import type { Caller } from './roles.js';
import type { ServerFacts } from './server-facts.js';
import type { ConfigChangesView, ReloadResultView } from './views/configuration.js';

/** Where the configuration of a running server comes from, to be read again: file, environment and flags. */
export interface ConfigSource {
  /** The file, when there is one. */
  readonly file?: string;
  /** Throws ConfigError with every problem. With `text`, that stands in place of the file's content, under the given name. */
  load(instead?: { readonly name: string; readonly text: string }): LoadedConfig<ServerConfig>;
}

/** What a reload works on besides the parts it changes. */
export interface ReloadSettings {
  readonly source: ConfigSource;
  readonly inForce: ConfigInForce;
  readonly facts: ServerFacts;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Certificates are no part of the configuration, but whoever renewed them and says reload means them too. */
  readonly lookAtCertificates: () => void;
}

export const RELOAD_SETTINGS = Symbol('ReloadSettings');

/** Who asks when nobody does: a signal, or the file itself. */
export const reloadCaller = (name: string): Caller => ({ name, role: 'admin', from: 'this machine' });

/** A configuration that may be put in force, and what it would change. */
export interface Candidate {
  /** With the settings that only a start can change as they are. */
  readonly config: ServerConfig;
  readonly changes: ConfigChangesView;
}

const SUBJECT = { kind: 'server', id: 'config' } as const;

/**
 * Puts another configuration in force while requests run: read whole, checked whole, compared, then swapped in one turn of the loop.
 * What is not valid changes nothing and is told by log, event, metric and status until a valid one comes.
 */
@Injectable()
export class ConfigReloadService implements OnApplicationBootstrap {
  constructor(
    @Inject(RELOAD_SETTINGS) private readonly settings: ReloadSettings,
    @Inject(RouterService) private readonly router: RouterService,
    @Inject(AuditLog) private readonly audit: AuditLog,
    @Optional() @Inject(CatalogService) private readonly catalog: CatalogService | null,
    @Optional() @Inject(ReconcilerService) private readonly reconciler: ReconcilerService | null,
  ) {}

  /** The file may have changed while the server was away. */
  onApplicationBootstrap(): void {
    const overruled = this.catalog?.overruled() ?? [];
    if (this.catalog === null || overruled.length === 0) return;
    const entry = { caller: reloadCaller('server'), action: 'start', target: 'config' };
    const ops = overruled.map((one) => this.catalog!.forgetScaleOp(one));
    try {
      this.audit.commit(entry, ops, ...overruled.map(overruledEvent));
    } catch (error) {
      // The rule holds without the store knowing: what is overruled is never counted.
      this.settings.logger.warn({ causes: errorChain(error) }, 'overruled replica counts are still stored');
    }
  }

  /** Reads the configuration again and puts it in force. Throws `invalid_configuration`, or StoreError; then nothing has changed. */
  reload(caller: Caller): ReloadResultView {
    const { facts, clock, lookAtCertificates } = this.settings;
    const entry: AuditEntry = { caller, action: 'reload', target: 'config' };
    lookAtCertificates();
    facts.configTriedWallMs = clock.wallMs();
    let candidate: Candidate;
    try {
      candidate = this.candidate();
      this.router.reconfigure(candidate.config);
    } catch (error) {
      throw this.refuse(entry, error);
    }
    this.putInForce(entry, candidate);
    return this.result(candidate);
  }

  /** A configuration read and compared with the one in force. Throws ConfigError. */
  candidate(instead?: { readonly name: string; readonly text: string }): Candidate {
    const { source, inForce, facts } = this.settings;
    const { config: wanted, warnings } = source.load(instead);
    const present = inForce.current();
    const settings = diffSettings(present, wanted);
    const needsRestart = settings.filter((one) => one.needsRestart).map(({ path }) => path);
    // Without a control plane in the process there is nothing that could place a model.
    const lacksControl = facts.mode === 'router' && wanted.models.length > 0;
    if (lacksControl) needsRestart.push('models');
    const config = keepAtStart(lacksControl ? withModels(wanted, present.models) : wanted, present);
    this.refuseExposure(config);
    const models = this.catalog?.diff(config.models) ?? [];
    return { config, changes: { models, settings, needsRestart, warnings } };
  }

  /** A file can be safe as a whole and still open a listener that stays where it is until the restart. */
  private refuseExposure(config: ServerConfig): void {
    const problems = exposureProblems(config);
    if (problems.length === 0) return;
    const source = this.settings.source.file ?? 'configuration';
    throw new ConfigError(
      problems.map(({ path, message }) => ({
        source,
        path,
        message: `until the server is restarted ${message}`,
      })),
    );
  }

  private putInForce(entry: AuditEntry, candidate: Candidate): void {
    const { inForce, facts, clock, logger } = this.settings;
    const { config, changes } = candidate;
    const before = inForce.current();
    const overruled = this.catalog?.overruled(config.models) ?? [];
    const recovered = facts.configProblems !== undefined;
    if (hasChanges(changes) || recovered) {
      try {
        const detail = hasChanges(changes) ? summary(changes) : 'valid again, and as before';
        const ops = overruled.map((one) => this.catalog!.forgetScaleOp(one));
        const events = [reloadedEvent(entry, detail), ...overruled.map(overruledEvent)];
        this.audit.commit({ ...entry, detail }, ops, ...events);
      } catch (error) {
        this.router.reconfigure(before);
        throw error;
      }
    }
    inForce.replace(config);
    this.catalog?.replace(config.models);
    if (before.log.level !== config.log.level) setLogLevel(logger, config.log.level);
    facts.configLoadedWallMs = clock.wallMs();
    if (hasChanges(changes)) {
      const by = entry.caller.name;
      facts.configChange = { wallMs: facts.configLoadedWallMs, by, detail: summary(changes) };
    }
    facts.configProblems = undefined;
    facts.configNeedsRestart = changes.needsRestart;
    this.tell(entry, changes);
    this.reconciler?.wake();
  }

  private tell(entry: AuditEntry, changes: ConfigChangesView): void {
    const log = this.settings.logger.child({ component: 'config' });
    for (const warning of changes.warnings) log.warn(formatProblem(warning));
    const { needsRestart } = changes;
    if (needsRestart.length > 0)
      log.warn({ needsRestart }, 'changed settings wait for a restart of the server');
    const by = entry.caller.name;
    if (hasChanges(changes)) log.info({ by, changes: summary(changes) }, 'the configuration was reloaded');
    else log.info({ by }, 'the configuration was read again and has not changed');
  }

  private refuse(entry: AuditEntry, error: unknown): OperatorError {
    const { facts, logger, source } = this.settings;
    const problems: readonly ConfigProblem[] =
      error instanceof ConfigError
        ? error.problems
        : [{ source: source.file ?? 'configuration', message: errorChain(error).join(': ') }];
    facts.configProblems = problems;
    const text = problems.map(formatProblem);
    logger
      .child({ component: 'config' })
      .error(
        { by: entry.caller.name, problems: text },
        'the configuration is not valid; the one in force stays',
      );
    this.audit.refused(
      { ...entry, detail: text.join('; ').slice(0, DETAIL_MAX_CHARS) },
      {
        type: 'ConfigRefused',
        severity: 'error',
        subject: SUBJECT,
        reason: {
          code: 'invalid_configuration',
          message: `the one in force stays: ${text.join('; ').slice(0, DETAIL_MAX_CHARS)}`,
        },
        actor: entry.caller.name,
      },
    );
    return invalidConfiguration(problems, error);
  }

  /** Why a file that was just edited changes nothing: who took it over before, and when. */
  alreadyTaken(): readonly string[] {
    const { facts, clock } = this.settings;
    const last = facts.configChange;
    if (last === undefined) return [];
    const ago = duration(Math.max(0, clock.wallMs() - last.wallMs));
    return [`the one in force was taken over ${ago} ago, by ${last.by}: ${last.detail}`];
  }

  private result({ changes }: Candidate): ReloadResultView {
    const changed = hasChanges(changes);
    const rolls = changes.models.some((model) => model.kind !== 'added' && model.rolls.length > 0);
    const starts = changes.models.some((model) => model.kind === 'added');
    const { needsRestart } = changes;
    return {
      ...changes,
      changed,
      notes: [
        ...(changed ? [] : this.alreadyTaken()),
        ...(needsRestart.length === 0 ? [] : [`needs a restart: ${needsRestart.join(', ')}`]),
        ...(rolls || starts ? ['watch it: llmgw ctl replicas --watch'] : []),
      ],
    };
  }
}

/** Longest text of all problems in an event or audit record; status and answer have them whole. */
const DETAIL_MAX_CHARS = 2_000;

/** The error of a call that was given something that is no configuration. */
export function invalidConfiguration(problems: readonly ConfigProblem[], cause?: unknown): OperatorError {
  const count = problems.length === 1 ? 'is 1 problem' : `are ${problems.length} problems`;
  return new OperatorError(
    'invalid_configuration',
    `there ${count} in the configuration; nothing was changed`,
    {
      problems,
      ...(cause === undefined ? {} : { cause }),
    },
  );
}

/** Whether anything is taken over without a restart. */
export function hasChanges({ models, settings }: ConfigChangesView): boolean {
  return models.length > 0 || settings.some((one) => !one.needsRestart);
}

/** `models: 1 added, 2 changed; settings: log.level`. */
function summary({ models, settings }: ConfigChangesView): string {
  const kinds = (['added', 'changed', 'removed'] as const).flatMap((kind) => {
    const names = models.filter((model) => model.kind === kind).map(({ model }) => model);
    return names.length === 0 ? [] : [`${names.join(', ')} ${kind}`];
  });
  const paths = settings.filter((one) => !one.needsRestart).map(({ path }) => path);
  const parts = [
    ...(kinds.length === 0 ? [] : [`models: ${kinds.join('; ')}`]),
    ...(paths.length === 0 ? [] : [`settings: ${paths.join(', ')}`]),
  ];
  return parts.join('; ').slice(0, DETAIL_MAX_CHARS);
}

function reloadedEvent({ caller }: AuditEntry, detail: string): EventInput {
  return {
    type: 'ConfigReloaded',
    subject: SUBJECT,
    reason: { code: 'operator', message: `by ${caller.name}; ${detail}` },
    actor: caller.name,
  };
}

function overruledEvent({ model, scaled, declared, override }: OverruledScale): EventInput {
  const now = declared === undefined ? 'no longer has the model' : `was changed to ${declared}`;
  return {
    type: 'ScaleOverruled',
    subject: { kind: 'model', id: model },
    reason: {
      code: 'configuration_changed',
      message: `the configuration ${now}; the ${scaled} replicas set by ${override.actor} no longer hold`,
    },
    actor: 'config',
  };
}

function withModels(config: ServerConfig, models: ServerConfig['models']): ServerConfig {
  return Object.assign(Object.create(Object.getPrototypeOf(config) as object) as ServerConfig, config, {
    models,
  });
}
