import { Controller, Get, Inject, Param } from '@nestjs/common';
import type { NodeView } from '../domain/cluster.js';
import { Doc } from './api-doc.js';
import { ClusterReader } from './cluster-reader.js';
import { gpuView, nodeDetail, nodeSummary, type NodeExtras } from './node-views.js';
import { RequireRole } from './roles.js';
import type { ListView } from './views/answers.js';
import type { GpuView, NodeDetailView, NodeSummaryView } from './views/nodes.js';

/** The machines and their devices. */
@Controller('admin/v1')
@RequireRole('viewer')
export class NodesController {
  constructor(@Inject(ClusterReader) private readonly cluster: ClusterReader) {}

  @Get('nodes')
  @Doc({ summary: 'The machines.', returns: 'NodeSummaryView', list: true })
  nodes(): ListView<NodeSummaryView> {
    const reading = this.cluster.read();
    return { items: reading.snapshot.nodes.map((node) => nodeSummary(reading, node, this.extras(node))) };
  }

  @Get('nodes/:id')
  @Doc({ summary: 'One machine, by id or unique beginning.', returns: 'NodeDetailView' })
  node(@Param('id') id: string): NodeDetailView {
    const reading = this.cluster.read();
    const node = this.cluster.node(reading, id);
    return nodeDetail(reading, node, this.extras(node));
  }

  @Get('gpus')
  @Doc({ summary: 'The devices of all machines.', returns: 'GpuView', list: true })
  gpus(): ListView<GpuView> {
    const reading = this.cluster.read();
    return {
      items: reading.snapshot.nodes.flatMap((node) => node.gpus.map((gpu) => gpuView(reading, node, gpu))),
    };
  }

  private extras(node: NodeView): NodeExtras {
    const { inventory } = this.cluster;
    return {
      record: inventory.record(node.id),
      refused: [...(inventory.refusedAgents().get(node.id) ?? [])],
    };
  }
}
