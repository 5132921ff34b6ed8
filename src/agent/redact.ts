/** Secrets are taken out where text enters the agent, so that no report, log or state file ever holds one. */

const MASK = '[redacted]';

/** Shapes that are secrets wherever they stand. */
const SHAPES: readonly RegExp[] = [
  /\bhf_[A-Za-z0-9_-]{6,}/g,
  /\bsk-[A-Za-z0-9_-]{6,}/g,
  /\b(?:ghp|gho|ghs|github_pat)_[A-Za-z0-9_]{8,}/g,
  /\bAKIA[A-Z0-9]{12,}/g,
  /\bxox[abpr]-[A-Za-z0-9-]{8,}/g,
  /\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*/g,
];
/** The name stays, the value goes: `--api-key VALUE`, also as Python prints a list, `api_key='VALUE'`, `Bearer VALUE`. */
const NAMED: readonly RegExp[] = [
  /(--[\w-]*(?:key|token|secret|password)(?:=|["']?,?\s+["']?))([^\s"',;)\]}]{4,})/gi,
  /((?:api[-_]?key|auth[-_]?token|access[-_]?token|hf[-_]?token|password|secret)["']?\s*[:=]\s*["']?)([^\s"',;)\]}]{4,})/gi,
  /(\bbearer\s+)([^\s"',;)\]}]{4,})/gi,
  // A proxy's or an index's own: `http://user:password@host`.
  /(\b[a-z][a-z0-9+.-]{1,15}:\/\/[^\s/:@]*:)([^\s/@]+)(?=@)/gi,
];
/** Values that say "none given". */
const NO_SECRET = new Set(['None', 'null', 'True', 'False', 'true', 'false', 'undefined', MASK]);

/** Names of environment variables and flags whose values are secrets. */
export const SECRET_NAME = /(?:key|token|secret|password|passwd|credential)s?$/i;

/** Shorter values occur by chance in any text; masking them would only garble logs. */
const MIN_KNOWN_CHARS = 6;

export type Redact = (text: string) => string;

/** A redactor that knows these values besides the general shapes. */
export function redactor(secrets: Iterable<string>): Redact {
  // A file's lines are printed one by one.
  const known = [
    ...new Set([...secrets].flatMap((secret) => secret.split(/\r?\n/)).map((line) => line.trim())),
  ]
    .filter((secret) => secret.length >= MIN_KNOWN_CHARS)
    // A secret that contains another must go first, or its rest would stay.
    .sort((a, b) => b.length - a.length);
  return (text) => {
    let out = text;
    for (const secret of known) out = out.replaceAll(secret, MASK);
    for (const shape of SHAPES) out = out.replace(shape, MASK);
    for (const named of NAMED) {
      out = out.replace(named, (whole, name: string, value: string) =>
        NO_SECRET.has(value) ? whole : `${name}${MASK}`,
      );
    }
    return out;
  };
}
