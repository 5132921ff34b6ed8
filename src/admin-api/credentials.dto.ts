import {
  ArrayMaxSize,
  IsArray,
  IsIn,
  IsInt,
  IsOptional,
  IsString,
  Matches,
  Max,
  MaxLength,
  Min,
  type ValidationOptions,
} from 'class-validator';
import { TOKEN_KINDS, type TokenKind } from '../access/records.js';
import { NOT_EMPTY } from '../config/setting.js';
import { ROLES, type Role } from './roles.js';

const NAME_MAX_CHARS = 100;
const EXPIRES_MAX_CHARS = 100;
/** Patterns of one key; each is tried on each request of it. */
const MODELS_MAX = 200;
const PRIORITY_MAX = 1_000;
/** Beyond this a limit is a typing mistake. */
const PER_MINUTE_MAX = 1_000_000_000;
const CONCURRENT_MAX = 1_000_000;

/** As a model is named in the configuration, with `*` at any place. */
const MODEL_PATTERN = /^[^\s\p{Cc}"'`\\,_-][^\s\p{Cc}"'`\\,]{0,254}$/u;

const expected = (what: string): ValidationOptions => ({ message: `$property: expected ${what}` });

/** Body of `POST keys`. */
export class CreateKeyDto {
  @IsString(expected('a name for people'))
  @Matches(NOT_EMPTY.pattern, expected(NOT_EMPTY.expected))
  @MaxLength(NAME_MAX_CHARS, expected(`at most ${NAME_MAX_CHARS} characters`))
  name!: string;

  /** Absent or empty: every model. */
  @IsOptional()
  @IsArray(expected('a list of model names'))
  @ArrayMaxSize(MODELS_MAX)
  @Matches(MODEL_PATTERN, { each: true, ...expected('names of models, which may hold *') })
  models?: string[];

  @IsOptional()
  @IsInt(expected('a whole number from 1'))
  @Min(1, expected('a whole number from 1'))
  @Max(PER_MINUTE_MAX)
  requestsPerMinute?: number;

  @IsOptional()
  @IsInt(expected('a whole number from 1'))
  @Min(1, expected('a whole number from 1'))
  @Max(PER_MINUTE_MAX)
  tokensPerMinute?: number;

  @IsOptional()
  @IsInt(expected('a whole number from 1'))
  @Min(1, expected('a whole number from 1'))
  @Max(CONCURRENT_MAX)
  maxConcurrent?: number;

  @IsOptional()
  @IsInt(expected(`a whole number from 0 to ${PRIORITY_MAX}`))
  @Min(0)
  @Max(PRIORITY_MAX)
  priority?: number;

  /** A duration, a date or a time. */
  @IsOptional()
  @IsString()
  @MaxLength(EXPIRES_MAX_CHARS)
  expires?: string;
}

/** Body of `POST tokens`. */
export class CreateTokenDto {
  @IsString(expected('a name for people'))
  @Matches(NOT_EMPTY.pattern, expected(NOT_EMPTY.expected))
  @MaxLength(NAME_MAX_CHARS, expected(`at most ${NAME_MAX_CHARS} characters`))
  name!: string;

  @IsOptional()
  @IsIn(TOKEN_KINDS, expected(TOKEN_KINDS.join(' or ')))
  kind?: TokenKind;

  /** Of `admin` tokens only. */
  @IsOptional()
  @IsIn(ROLES, expected(ROLES.join(', ')))
  role?: Role;

  /** A duration, a date or a time. */
  @IsOptional()
  @IsString()
  @MaxLength(EXPIRES_MAX_CHARS)
  expires?: string;
}
