import { Module, type DynamicModule } from '@nestjs/common';
import { PrometheusModule } from '@willsoto/nestjs-prometheus';
import { ConfigMetrics } from './config.metrics.js';
import { MetricsController } from './metrics.controller.js';
import { ProcessMetrics } from './process.metrics.js';

/** `/metrics` and what every process shows of itself. */
@Module({})
export class MetricsModule {
  static register(): DynamicModule {
    return {
      module: MetricsModule,
      imports: [
        PrometheusModule.register({
          path: '/metrics',
          controller: MetricsController,
          defaultMetrics: { enabled: true },
        }),
      ],
      providers: [ProcessMetrics, ConfigMetrics],
      exports: [ProcessMetrics],
    };
  }
}
