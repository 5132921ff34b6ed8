import type { Reason } from '../domain/cluster.js';
import { duration } from '../domain/placement/reasons.js';
import type { CertificateFacts } from './server-facts.js';
import { known } from './view-times.js';
import type { CertificateView } from './views/status.js';

const DAY_MS = 86_400_000;
/** Less than this left, ms, is told: what renews certificates does so well before. The alert rules say the same. */
const EXPIRING_MS = 14 * DAY_MS;

export function certificateView({ listener, file, endsWallMs, problem }: CertificateFacts): CertificateView {
  return { listener, file, endsAt: new Date(endsWallMs).toISOString(), ...known('problem', problem) };
}

/** In one line: when it ends, and what is in the way of its successor. */
export function certificateState({ endsWallMs, problem }: CertificateFacts, nowWallMs: number): string {
  const at = new Date(endsWallMs).toISOString();
  const end =
    endsWallMs <= nowWallMs ? `ended at ${at}` : `ends at ${at}, in ${left(endsWallMs - nowWallMs)}`;
  return problem === undefined ? end : `${end}; the files hold another that is not taken: ${problem}`;
}

const left = (ms: number): string => (ms < 2 * DAY_MS ? duration(ms) : `${Math.floor(ms / DAY_MS)} days`);

/** Those that need a hand, worst first. */
export function certificateWarnings(
  certificates: readonly CertificateFacts[],
  nowWallMs: number,
): readonly Reason[] {
  return [...certificates]
    .sort((a, b) => a.endsWallMs - b.endsWallMs)
    .flatMap((one): readonly Reason[] => {
      const leftMs = one.endsWallMs - nowWallMs;
      const code = codeOf(leftMs, one.problem);
      if (code === undefined) return [];
      const message = `the certificate of the ${one.listener} listener ${certificateState(one, nowWallMs)}`;
      return [{ code, message, numbers: { leftMs } }];
    });
}

function codeOf(leftMs: number, problem: string | undefined): string | undefined {
  if (leftMs <= 0) return 'certificate_expired';
  if (problem !== undefined) return 'certificate_refused';
  return leftMs < EXPIRING_MS ? 'certificate_expiring' : undefined;
}
