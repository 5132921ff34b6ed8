import { Module, type DynamicModule, type ModuleMetadata } from '@nestjs/common';
import { APP_GUARD } from '@nestjs/core';
import { CatalogModule } from '../catalog/catalog.module.js';
import { InventoryModule } from '../inventory/inventory.module.js';
import { MetricsModule } from '../metrics/metrics.module.js';
import { RouterModule } from '../router/router.module.js';
import { ClusterReader } from './cluster-reader.js';
import { HealthController } from './health.controller.js';
import { ModelsController } from './models.controller.js';
import { NodesController } from './nodes.controller.js';
import { RoleGuard } from './role.guard.js';
import { RoutingController } from './routing.controller.js';
import { StatusController } from './status.controller.js';

type ModuleImport = NonNullable<ModuleMetadata['imports']>[number];

/** What operators call. Without a control plane only what concerns the router is there. */
@Module({})
export class AdminApiModule {
  static routerOnly(): DynamicModule {
    return {
      module: AdminApiModule,
      imports: [RouterModule, MetricsModule.register()],
      controllers: [HealthController, StatusController, RoutingController],
      providers: [{ provide: APP_GUARD, useClass: RoleGuard }],
    };
  }

  static controlPlane(options: { reconciler: ModuleImport; gateway: ModuleImport }): DynamicModule {
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
      controllers: [HealthController, StatusController, RoutingController, NodesController, ModelsController],
      providers: [{ provide: APP_GUARD, useClass: RoleGuard }, ClusterReader],
    };
  }
}
