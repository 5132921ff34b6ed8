import {
  IsBoolean,
  IsIn,
  IsInt,
  IsOptional,
  IsString,
  Max,
  MaxLength,
  Min,
  Validate,
  ValidatorConstraint,
  type ValidatorConstraintInterface,
} from 'class-validator';
import { DURATION_EXPECTED, parseDuration } from '../config/units.js';
import { REPLICAS_MAX, type SchedulingRequest } from './operations.service.js';
import { QuerySwitch } from './validation.js';

const TARGETS = ['schedulable', 'cordoned', 'drained'] as const;

@ValidatorConstraint()
class DurationText implements ValidatorConstraintInterface {
  validate(value: unknown): boolean {
    return typeof value === 'string' && parseDuration(value).ok;
  }
  defaultMessage(): string {
    return `$property: expected ${DURATION_EXPECTED}`;
  }
}

/** Body of `PUT nodes/{id}/scheduling`. */
export class SchedulingDto {
  @IsIn(TARGETS, { message: `target: expected ${TARGETS.join(', ')}` })
  target!: (typeof TARGETS)[number];

  @IsOptional()
  @IsString()
  @MaxLength(500)
  reason?: string;

  /** With a unit, as in the configuration. */
  @IsOptional()
  @Validate(DurationText)
  deadline?: string;

  @IsOptional()
  @Validate(DurationText)
  streamGrace?: string;

  @IsOptional()
  @IsBoolean()
  allowGap?: boolean;

  @IsOptional()
  @IsString()
  @MaxLength(200)
  gpu?: string;
}

/** Body of `PUT models/{name}/scale`. */
export class ScaleDto {
  @IsInt({ message: 'replicas: expected a whole number' })
  @Min(0)
  @Max(REPLICAS_MAX)
  replicas!: number;
}

/** Body of both restarts. */
export class RestartDto {
  @IsOptional()
  @IsBoolean()
  allowGap?: boolean;
}

/** Query of calls that can show instead of do. */
export class PlanQuery {
  @QuerySwitch()
  plan = false;
}

export function schedulingRequest(dto: SchedulingDto): SchedulingRequest {
  return {
    target: dto.target,
    ...(dto.reason === undefined ? {} : { reason: dto.reason }),
    ...(dto.deadline === undefined ? {} : { deadlineMs: durationMs(dto.deadline) }),
    ...(dto.streamGrace === undefined ? {} : { streamGraceMs: durationMs(dto.streamGrace) }),
    ...(dto.allowGap === undefined ? {} : { allowGap: dto.allowGap }),
    ...(dto.gpu === undefined ? {} : { gpu: dto.gpu }),
  };
}

/** Checked by the validator before. */
function durationMs(text: string): number {
  const parsed = parseDuration(text);
  return parsed.ok ? parsed.value : 0;
}
