import { createHash, timingSafeEqual } from 'node:crypto';
import { readFileSync } from 'node:fs';
import type { TokenRing } from '../access/token-ring.js';
import { OperatorError } from '../shared/errors.js';

/** Shortest join token taken: 128 bits in base64url are 22 characters. */
const TOKEN_MIN_CHARS = 22;

/**
 * Checks the tokens agents join with: those of the store, and those of a file where one is configured. The file is read
 * anew for each agent, so that rotating it needs no restart.
 */
export class JoinTokens {
  constructor(
    private readonly file: string | undefined,
    private readonly stored: Pick<TokenRing, 'acceptsJoin'>,
  ) {}

  /** Whether the token is a known one. Throws {@link OperatorError} when the file cannot be read. */
  accepts(token: string | undefined): boolean {
    if (token === undefined) return false;
    return this.stored.acceptsJoin(token) || (this.file !== undefined && this.inFile(this.file, token));
  }

  private inFile(file: string, token: string): boolean {
    const given = digest(token);
    let accepted = false;
    // Every line is compared, whatever matched before: how long it takes tells nothing.
    for (const known of this.read(file)) accepted = timingSafeEqual(digest(known), given) || accepted;
    return accepted;
  }

  private read(file: string): readonly string[] {
    let text: string;
    try {
      text = readFileSync(file, 'utf8');
    } catch (error) {
      throw new OperatorError('internal_error', `the join tokens in ${file} cannot be read`, {
        field: 'auth.agents.joinTokensFile',
        cause: error,
      });
    }
    return text
      .split('\n')
      .map((line) => line.trim())
      .filter((line) => line.length >= TOKEN_MIN_CHARS && !line.startsWith('#'));
  }
}

function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
