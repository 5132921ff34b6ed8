import { Module, type DynamicModule, type ModuleMetadata } from '@nestjs/common';
import { APP_GUARD } from '@nestjs/core';
import { CatalogModule } from '../catalog/catalog.module.js';
import { InventoryModule } from '../inventory/inventory.module.js';
import { MetricsModule } from '../metrics/metrics.module.js';
import { RouterModule } from '../router/router.module.js';
import { AuditLog } from './audit-log.js';
import { BackupController } from './backup.controller.js';
import { ChangesController } from './changes.controller.js';
import { ClusterReader } from './cluster-reader.js';
import { ConfigPlanService } from './config-plan.service.js';
import { ConfigReloadService, RELOAD_SETTINGS, type ReloadSettings } from './config-reload.service.js';
import { ConfigController } from './config.controller.js';
import { DebugController } from './debug.controller.js';
import { EventsController } from './events.controller.js';
import { HealthController } from './health.controller.js';
import { KeysController } from './keys.controller.js';
import { KeysService } from './keys.service.js';
import { LogsController } from './logs.controller.js';
import { ModelsController } from './models.controller.js';
import { NodesController } from './nodes.controller.js';
import { OpenApiController } from './openapi.controller.js';
import { OperationsService } from './operations.service.js';
import { PlacementsController } from './placements.controller.js';
import { QueryGuard } from './query.guard.js';
import { RoleGuard } from './role.guard.js';
import { RouterOnlyController } from './router-only.controller.js';
import { RoutingController } from './routing.controller.js';
import { StaticModelsController } from './static-models.controller.js';
import { StatusController } from './status.controller.js';
import { TokensController } from './tokens.controller.js';
import { TokensService } from './tokens.service.js';

type ModuleImport = NonNullable<ModuleMetadata['imports']>[number];

/** There with and without a control plane. */
const COMMON = [
  HealthController,
  StatusController,
  RoutingController,
  EventsController,
  ConfigController,
  BackupController,
  DebugController,
  OpenApiController,
  KeysController,
  TokensController,
];

const commonProviders = (options: { readonly reload: ReloadSettings }) => [
  { provide: APP_GUARD, useClass: RoleGuard },
  // Behind the door: who may not come in learns nothing of what is there.
  { provide: APP_GUARD, useClass: QueryGuard },
  { provide: RELOAD_SETTINGS, useValue: options.reload },
  AuditLog,
  ConfigReloadService,
  ConfigPlanService,
  KeysService,
  TokensService,
];

/** What operators call. Without a control plane only what concerns the router is there. */
@Module({})
export class AdminApiModule {
  static routerOnly(options: { reload: ReloadSettings }): DynamicModule {
    return {
      module: AdminApiModule,
      imports: [RouterModule, MetricsModule.register()],
      controllers: [...COMMON, StaticModelsController, RouterOnlyController],
      providers: commonProviders(options),
    };
  }

  static controlPlane(options: {
    reconciler: ModuleImport;
    gateway: ModuleImport;
    reload: ReloadSettings;
  }): DynamicModule {
    return {
      module: AdminApiModule,
      imports: [
        RouterModule,
        CatalogModule,
        InventoryModule,
        MetricsModule.register(),
        options.reconciler,
        options.gateway,
      ],
      controllers: [
        ...COMMON,
        NodesController,
        ModelsController,
        PlacementsController,
        LogsController,
        ChangesController,
      ],
      providers: [...commonProviders(options), ClusterReader, OperationsService],
    };
  }
}
