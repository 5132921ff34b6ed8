import { Module, type DynamicModule, type ModuleMetadata } from '@nestjs/common';
import { CatalogModule } from '../catalog/catalog.module.js';
import { InventoryModule } from '../inventory/inventory.module.js';
import { RouterModule } from '../router/router.module.js';
import { ClusterState } from './cluster-state.js';
import { STATUS_SINK } from './ports.js';
import { RECONCILER_SETTINGS, type ReconcilerSettings } from './reconciler-settings.js';
import { ReconcilerService } from './reconciler.service.js';
import { RoutePublisher } from './route-publisher.js';

type ModuleImport = NonNullable<ModuleMetadata['imports']>[number];

/** The control loop. `dispatcher` is the module that exports the way to the agents; it needs this one in turn. */
@Module({})
export class ReconcilerModule {
  static register(options: { dispatcher: ModuleImport; settings: ReconcilerSettings }): DynamicModule {
    return {
      module: ReconcilerModule,
      imports: [CatalogModule, InventoryModule, RouterModule, options.dispatcher],
      providers: [
        ReconcilerService,
        ClusterState,
        RoutePublisher,
        { provide: STATUS_SINK, useExisting: ReconcilerService },
        { provide: RECONCILER_SETTINGS, useValue: options.settings },
      ],
      exports: [ReconcilerService, RoutePublisher, STATUS_SINK, RECONCILER_SETTINGS],
    };
  }
}
