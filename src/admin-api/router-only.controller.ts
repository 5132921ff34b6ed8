import { All, Controller } from '@nestjs/common';
import { OperatorError } from '../shared/errors.js';
import { RequireRole } from './roles.js';

/** In a server without a control plane: says so, where "there is nothing here" would send people looking for a typing error. */
@Controller('admin/v1')
@RequireRole('viewer')
export class RouterOnlyController {
  @All([
    'nodes',
    'nodes/:id',
    'nodes/:id/scheduling',
    'gpus',
    'models/:name/:action',
    'replicas',
    'replicas/:id',
    'replicas/:id/:action',
    'placements/:model/explain',
    'shards/:id/logs',
  ])
  none(): never {
    throw new OperatorError('not_found', 'this server is router-only: it has no nodes and no replicas', {
      hint: 'llmgw ctl endpoints shows what it routes to; declare models to have it place and run them',
    });
  }
}
