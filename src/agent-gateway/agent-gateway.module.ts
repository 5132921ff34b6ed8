import { Module, type DynamicModule, type ModuleMetadata } from '@nestjs/common';
import { InventoryModule } from '../inventory/inventory.module.js';
import { DISPATCHER } from '../reconciler/ports.js';
import { AgentGatewayController } from './agent-gateway.controller.js';
import { AgentGatewayService } from './agent-gateway.service.js';
import { GATEWAY_SETTINGS, LOG_SOURCE, type GatewaySettings } from './ports.js';

type ModuleImport = NonNullable<ModuleMetadata['imports']>[number];

/** The agents' end of the control plane. `reconciler` is the module that exports the status sink. */
@Module({})
export class AgentGatewayModule {
  static register(options: { reconciler: ModuleImport; settings: GatewaySettings }): DynamicModule {
    return {
      module: AgentGatewayModule,
      imports: [InventoryModule, options.reconciler],
      controllers: [AgentGatewayController],
      providers: [
        AgentGatewayService,
        { provide: GATEWAY_SETTINGS, useValue: options.settings },
        { provide: DISPATCHER, useExisting: AgentGatewayService },
        { provide: LOG_SOURCE, useExisting: AgentGatewayService },
      ],
      exports: [AgentGatewayService, DISPATCHER, LOG_SOURCE],
    };
  }
}
