import { status as GrpcStatus } from '@grpc/grpc-js';
import { Controller, Inject } from '@nestjs/common';
import { GrpcStreamCall } from '@nestjs/microservices';
import type { GatewayStream } from '../agent-protocol/proto.js';
import { errorChain } from '../shared/errors.js';
import { AgentGatewayService } from './agent-gateway.service.js';
import { GATEWAY_SETTINGS, type GatewaySettings } from './ports.js';

/**
 * Where agents arrive. The raw call is taken rather than Nest's observable: that one reads without back-pressure, buffers
 * writes without bound, and cannot tell a cancel from a clean end.
 */
@Controller()
export class AgentGatewayController {
  constructor(
    @Inject(AgentGatewayService) private readonly gateway: AgentGatewayService,
    @Inject(GATEWAY_SETTINGS) private readonly settings: GatewaySettings,
  ) {}

  @GrpcStreamCall('AgentGateway', 'Connect')
  connect(stream: GatewayStream): void {
    try {
      this.gateway.open(stream);
    } catch (error) {
      // A throw from here would be an unhandled rejection and end the process for all agents.
      this.settings.logger.error({ causes: errorChain(error) }, 'opening an agent stream failed');
      const details = 'the server failed to open the stream';
      stream.emit('error', Object.assign(new Error(details), { code: GrpcStatus.INTERNAL, details }));
    }
  }
}
