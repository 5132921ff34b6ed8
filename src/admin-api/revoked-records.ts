import type { Collection, StoreOp } from '../store/ports.js';

/** Revoked keys, and revoked tokens, that are kept so that it can be seen who ended which; the oldest go. */
const REVOKED_KEPT = 1_000;

/** Deletes the oldest revoked records that are too many once `next` is stored. */
export function surplusRevoked(
  collection: Collection,
  records: readonly { readonly id: string; readonly revokedAt?: string }[],
  next: { readonly id: string; readonly revokedAt?: string },
): readonly StoreOp[] {
  const revoked = [...records.filter(({ id }) => id !== next.id), next]
    .filter(({ revokedAt }) => revokedAt !== undefined)
    .toSorted((a, b) => ((a.revokedAt ?? '') < (b.revokedAt ?? '') ? -1 : 1));
  return revoked
    .slice(0, Math.max(0, revoked.length - REVOKED_KEPT))
    .map(({ id }) => ({ op: 'delete', collection, key: id }));
}
