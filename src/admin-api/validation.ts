import { applyDecorators, type ValidationError, type ValidationPipeOptions } from '@nestjs/common';
import { Transform } from 'class-transformer';
import { IsBoolean, IsOptional } from 'class-validator';
import { OperatorError } from '../shared/errors.js';

/** How bodies and queries of the admin API are checked: unknown fields are errors, and the first wrong one is named. */
export const adminValidation: ValidationPipeOptions = {
  transform: true,
  whitelist: true,
  forbidNonWhitelisted: true,
  exceptionFactory: (errors) => {
    const wrong = flatten(errors, '');
    const [first] = wrong;
    const message = wrong.map((one) => one.message).join('; ');
    return new OperatorError('invalid_argument', message, first === undefined ? {} : { field: first.field });
  },
};

const SWITCH_WORDS: ReadonlyMap<unknown, boolean> = new Map<unknown, boolean>([
  ['', true],
  ['true', true],
  [true, true],
  ['false', false],
  [false, false],
]);

/** A switch of a query, on when it is there. Another word is refused: `?plan=1` must not do what it was to show. */
export function QuerySwitch(): PropertyDecorator {
  return applyDecorators(
    IsOptional(),
    Transform(({ value }) => SWITCH_WORDS.get(value) ?? (value as unknown)),
    IsBoolean({ message: '$property: expected true or false' }),
  );
}

/** Body of changes that have nothing more to say: a field that is sent all the same is refused, not overlooked. */
export class EmptyDto {}

function flatten(
  errors: readonly ValidationError[],
  prefix: string,
): readonly { readonly field: string; readonly message: string }[] {
  return errors.flatMap((error) => {
    const field = prefix + error.property;
    const own = Object.entries(error.constraints ?? {}).map(([rule, message]) => ({
      field,
      message: rule === 'whitelistValidation' ? `there is no field ${field}` : message,
    }));
    return [...own, ...flatten(error.children ?? [], `${field}.`)];
  });
}
