import { SetMetadata } from '@nestjs/common';

/** What a token allows; each role can do what the ones before it can. */
export const ROLES = ['viewer', 'operator', 'admin'] as const;
export type Role = (typeof ROLES)[number];

export const ROLE_METADATA = 'llmgw:role';

/** The least role a route needs; `open` for probes that must answer before anybody has a token. */
export const RequireRole = (role: Role | 'open') => SetMetadata(ROLE_METADATA, role);

/** Whether `has` is allowed to do what `needs` may do. */
export function allows(has: Role, needs: Role): boolean {
  return ROLES.indexOf(has) >= ROLES.indexOf(needs);
}

/** Name of whoever calls while no tokens are configured. */
export const LOCAL_CALLER = 'local';

/** Who makes a call. */
export interface Caller {
  /** Name of the token, or `local` when there are no tokens. */
  readonly name: string;
  readonly role: Role;
  /** Address the call comes from. */
  readonly from: string;
}
