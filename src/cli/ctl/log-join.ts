/**
 * Joins a log that broke off with the one that is read after it. Lines have no numbers, so the place is found by what
 * was printed last; the agent sends its latest lines again, and those that were seen are left out.
 */

/** Lines that tell the place: engines repeat single lines, not so many in a row. */
const MARK_LINES = 20;
/** As many as an agent keeps: lines past these cannot be sent again. */
export const RESUME_LINES = 2_000;

export class LogJoin {
  private last: string[] = [];
  private rest = '';
  /** Lines since the log goes on, as long as the place is not found. */
  private held: string[] | undefined;

  /** The log broke off; what comes next may have been printed already. */
  brokeOff(): void {
    this.rest = '';
    if (this.last.length > 0) this.held = [];
  }

  /** Text to print now. */
  take(text: string): string {
    const parts = (this.rest + text).split('\n');
    this.rest = parts.pop() ?? '';
    if (this.held === undefined) return this.print(parts);
    this.held.push(...parts);
    const place = placeAfter(this.held, this.last);
    if (place !== undefined) return this.release(place);
    return this.held.length >= RESUME_LINES ? this.release(0) : '';
  }

  /** True while lines are held back because their place is not known. */
  get isSearching(): boolean {
    return this.held !== undefined && this.held.length > 0;
  }

  /** Gives the search up: the last line may have been unfinished; else what came is another run, or lines are lost. */
  giveUp(): string {
    const place = placeAfter(this.held ?? [], this.last.slice(0, -1));
    return this.release(place ?? 0);
  }

  private release(from: number): string {
    const lines = this.held?.slice(from) ?? [];
    this.held = undefined;
    return this.print(lines);
  }

  private print(lines: readonly string[]): string {
    if (lines.length === 0) return '';
    this.last = [...this.last, ...lines].slice(-MARK_LINES);
    return `${lines.join('\n')}\n`;
  }
}

/** The index behind the last place where all of `mark` stands in a row. */
function placeAfter(lines: readonly string[], mark: readonly string[]): number | undefined {
  if (mark.length === 0) return undefined;
  for (let end = lines.length; end >= mark.length; end--)
    if (mark.every((line, at) => line === lines[end - mark.length + at])) return end;
  return undefined;
}
