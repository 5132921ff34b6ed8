import { forwardRef, Module, type DynamicModule } from '@nestjs/common';
import { AccessModule } from '../access/access.module.js';
import { AdminApiModule } from '../admin-api/admin-api.module.js';
import { AgentGatewayModule } from '../agent-gateway/agent-gateway.module.js';
import { EventsModule } from '../events/events.module.js';
import { ControlMetrics } from '../metrics/control.metrics.js';
import { controlPolicy } from '../reconciler/control-policy.js';
import { reconcile } from '../domain/reconcile/reconcile.js';
import { ReconcilerModule } from '../reconciler/reconciler.module.js';
import { RouterModule } from '../router/router.module.js';
import { StoreModule } from '../store/store.module.js';
import type { ReloadSettings } from '../admin-api/config-reload.service.js';
import type { ServerParts } from './server-parts.js';
import { SharedModule } from './shared.module.js';

/**
 * The composition root. A router-only server has no control plane in its graph at all.
 *
 * Reconciler and agent gateway need each other: the one sends commands through the other's streams, which hand reports
 * back. The two lines below, and the constructor of `ReconcilerService`, are the only places that know of this circle;
 * the files themselves import each other's ports only.
 */
@Module({})
export class ServerModule {
  static routerOnly(parts: ServerParts): DynamicModule {
    return {
      module: ServerModule,
      imports: [
        SharedModule.register(parts),
        StoreModule.register(parts.store, parts.term),
        EventsModule.register(),
        AccessModule.register(),
        RouterModule,
        AdminApiModule.routerOnly({ reload: reloadSettings(parts) }),
      ],
    };
  }

  /** `order` exists to prove that it does not matter. */
  static controlPlane(
    parts: ServerParts,
    order: 'reconcilerFirst' | 'gatewayFirst' = 'reconcilerFirst',
  ): DynamicModule {
    const reconciler: DynamicModule = ReconcilerModule.register({
      dispatcher: forwardRef(() => gateway),
      settings: {
        clock: parts.clock,
        random: parts.decisionRandom,
        logger: parts.logger.child({ component: 'reconciler' }),
        decide: reconcile,
        get policy() {
          return controlPolicy(parts.config.control);
        },
        get intervalMs() {
          return parts.config.control.interval;
        },
      },
    });
    const { joinTokensFile, joinTokensRequired } = parts.config.auth.agents;
    const gateway: DynamicModule = AgentGatewayModule.register({
      reconciler,
      settings: {
        clock: parts.clock,
        logger: parts.logger,
        build: parts.facts.version,
        get unreachableAfterMs() {
          return parts.config.control.unreachableAfter;
        },
        get portRange() {
          return parts.config.control.portRange;
        },
        joinTokensRequired,
        ...(joinTokensFile === undefined ? {} : { joinTokensFile }),
      },
    });
    return {
      module: ServerModule,
      imports: [
        SharedModule.register(parts),
        StoreModule.register(parts.store, parts.term),
        EventsModule.register(),
        AccessModule.register(),
        RouterModule,
        ...(order === 'reconcilerFirst' ? [reconciler, gateway] : [gateway, reconciler]),
        AdminApiModule.controlPlane({ reconciler, gateway, reload: reloadSettings(parts) }),
      ],
      providers: [ControlMetrics],
    };
  }
}

function reloadSettings(parts: ServerParts): ReloadSettings {
  const { source, inForce, facts, clock, logger, certificates } = parts;
  return { source, inForce, facts, clock, logger, lookAtCertificates: () => certificates.look() };
}
