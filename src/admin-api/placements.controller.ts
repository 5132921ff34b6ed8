import { Controller, Get, Inject, Param, Query } from '@nestjs/common';
import { IsOptional, IsString } from 'class-validator';
import type { PlacementExplanation, ReplicaRecord } from '../domain/cluster.js';
import { explainPlacement } from '../domain/reconcile/explain.js';
import { RECONCILER_SETTINGS, type ReconcilerSettings } from '../reconciler/reconciler-settings.js';
import { OperatorError } from '../shared/errors.js';
import { Doc } from './api-doc.js';
import { ClusterReader, type ClusterReading } from './cluster-reader.js';
import { RequireRole } from './roles.js';
import type { PlacementView } from './views/models.js';

class PlacementQuery {
  /** Id of a replica, or its beginning. */
  @IsOptional()
  @IsString()
  replica?: string;
}

/** Why replicas stand where they stand, or nowhere. */
@Controller('admin/v1/placements')
@RequireRole('viewer')
export class PlacementsController {
  constructor(
    @Inject(ClusterReader) private readonly cluster: ClusterReader,
    @Inject(RECONCILER_SETTINGS) private readonly settings: ReconcilerSettings,
  ) {}

  /** Without a replica: where the next one would go now. With one that has a place: the decision as it was made. */
  @Get(':model/explain')
  @Doc({ summary: 'Why replicas stand where they stand, or nowhere.', returns: 'PlacementView' })
  explain(@Param('model') name: string, @Query() { replica: replicaId }: PlacementQuery): PlacementView {
    const reading = this.cluster.read();
    const model = this.cluster.model(name);
    const record = replicaId === undefined ? undefined : this.replicaOf(reading, model.name, replicaId);
    const decided = record !== undefined && record.shards.length > 0 ? record.placement : undefined;
    const wanted = reading.replicasOf(model.name).filter((one) => one.record.intent === 'run');
    const have = wanted.filter((one) => one.record.shards.length > 0).length;
    return {
      model: model.name,
      at: decided === undefined ? reading.times.now() : reading.times.wall(record?.createdWallMs ?? 0),
      basis: decided === undefined ? 'now' : 'decided',
      desired: model.replicas,
      have,
      conditions: reading.conditions(model.name),
      explanation: decided ?? this.now(reading, model.name, record?.id),
      ...(record === undefined ? {} : { replicaId: record.id }),
    };
  }

  private replicaOf(reading: ClusterReading, model: string, id: string): ReplicaRecord {
    const { record } = this.cluster.replica(reading, id);
    if (record.model === model) return record;
    throw new OperatorError(
      'invalid_argument',
      `replica ${record.id} is one of ${record.model}, not of ${model}`,
      {
        field: 'replica',
      },
    );
  }

  private now(reading: ClusterReading, model: string, replicaId: string | undefined): PlacementExplanation {
    const { policy, random } = this.settings;
    const context = { nowMs: reading.times.nowMs, nowWallMs: reading.times.nowWallMs, random };
    const explanation = explainPlacement(reading.snapshot, policy, context, model, replicaId);
    if (explanation !== undefined) return explanation;
    throw new OperatorError('not_found', `there is no model "${model}"`);
  }
}
