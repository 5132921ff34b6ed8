/** The columns of `ctl keys list` and `ctl tokens list`. */
import type { KeyView, TokenView } from '../../admin-api/views/credentials.js';
import type { Column } from './table.js';
import { age, until } from './values.js';

const ends = (expiresAt: string | undefined, nowMs: number): string =>
  expiresAt === undefined
    ? 'never'
    : Date.parse(expiresAt) <= nowMs
      ? `${age(expiresAt, nowMs)} ago`
      : until(expiresAt, nowMs);

const stateTone = ({ state }: { readonly state: string }) =>
  state === 'active' ? 'good' : state === 'expired' ? 'busy' : 'bad';

export const KEY_COLUMNS: readonly Column<KeyView>[] = [
  { title: 'KEY', cell: (key) => key.id },
  { title: 'NAME', cell: (key) => key.name },
  { title: 'STATE', cell: (key) => key.state, tone: stateTone },
  { title: 'MODELS', cell: ({ models }) => (models.length === 0 ? 'all' : models.join(',')), shrinks: true },
  { title: 'RPM', cell: (key) => key.requestsPerMinute, right: true },
  { title: 'TPM', cell: (key) => key.tokensPerMinute, right: true },
  {
    title: 'IN FLIGHT',
    cell: ({ use, maxConcurrent }) =>
      use === undefined
        ? undefined
        : maxConcurrent === undefined
          ? use.inflight
          : `${use.inflight}/${maxConcurrent}`,
    right: true,
  },
  { title: 'PRIORITY', cell: (key) => key.priority, right: true },
  { title: 'EXPIRES', cell: ({ expiresAt }, { nowMs }) => ends(expiresAt, nowMs) },
  {
    title: 'USED',
    cell: ({ use, lastUsedAt: atEnd }, { nowMs }) => {
      const lastUsedAt = use?.lastUsedAt ?? atEnd;
      return lastUsedAt === undefined ? undefined : `${age(lastUsedAt, nowMs)} ago`;
    },
    right: true,
  },
  { title: 'REQUESTS', cell: ({ use }) => use?.requestsTotal, right: true, wide: true },
  { title: 'REFUSED', cell: ({ use }) => use?.refusedTotal, right: true, wide: true },
  { title: 'TOKENS', cell: ({ use }) => use?.tokensTotal, right: true, wide: true },
  { title: 'AGE', cell: (key, { nowMs }) => age(key.createdAt, nowMs), right: true, wide: true },
  { title: 'BY', cell: (key) => key.createdBy, wide: true },
  { title: 'NOTE', cell: revokedNote, shrinks: true },
];

export const TOKEN_COLUMNS: readonly Column<TokenView>[] = [
  { title: 'TOKEN', cell: (token) => token.id },
  { title: 'NAME', cell: (token) => token.name },
  { title: 'KIND', cell: (token) => token.kind },
  { title: 'ROLE', cell: (token) => token.role },
  { title: 'STATE', cell: (token) => token.state, tone: stateTone },
  { title: 'EXPIRES', cell: ({ expiresAt }, { nowMs }) => ends(expiresAt, nowMs) },
  { title: 'AGE', cell: (token, { nowMs }) => age(token.createdAt, nowMs), right: true },
  { title: 'BY', cell: (token) => token.createdBy, wide: true },
  { title: 'FROM', cell: (token) => token.source, wide: true },
  { title: 'NOTE', cell: revokedNote, shrinks: true },
];

function revokedNote(
  { revokedAt, revokedBy }: Pick<KeyView, 'revokedAt' | 'revokedBy'>,
  { nowMs }: { readonly nowMs: number },
): string | undefined {
  return revokedAt === undefined
    ? undefined
    : `revoked ${age(revokedAt, nowMs)} ago by ${revokedBy ?? 'nobody known'}`;
}
