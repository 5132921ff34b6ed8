import { createHash, timingSafeEqual } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { OperatorError } from '../shared/errors.js';

/** Shortest join token taken: 128 bits in base64url are 22 characters. */
const TOKEN_MIN_CHARS = 22;

/** Checks the tokens agents join with. The file is read anew for each agent, so that rotating it needs no restart. */
export class JoinTokens {
  constructor(private readonly file: string) {}

  /** Whether the token is one of the file's. Throws {@link OperatorError} when the file cannot be read. */
  accepts(token: string | undefined): boolean {
    if (token === undefined) return false;
    const given = digest(token);
    let accepted = false;
    // Every line is compared, whatever matched before: how long it takes tells nothing.
    for (const known of this.read()) accepted = timingSafeEqual(digest(known), given) || accepted;
    return accepted;
  }

  private read(): readonly string[] {
    let text: string;
    try {
      text = readFileSync(this.file, 'utf8');
    } catch (error) {
      throw new OperatorError('internal_error', `the join tokens in ${this.file} cannot be read`, {
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
