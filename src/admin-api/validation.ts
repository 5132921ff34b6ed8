import type { ValidationError, ValidationPipeOptions } from '@nestjs/common';
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
