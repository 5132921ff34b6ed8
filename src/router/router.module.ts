import { Module } from '@nestjs/common';
import { ROUTER_PORT } from './ports.js';
import { RouterService } from './router.service.js';

/** The data plane. Needs SERVER_CONFIG, LOGGER and AUTHORISER from global modules; gives ROUTER_PORT. */
@Module({
  providers: [RouterService, { provide: ROUTER_PORT, useExisting: RouterService }],
  exports: [RouterService, ROUTER_PORT],
})
export class RouterModule {}
