/** Names close enough to a mistyped one to be worth naming. */

const SUGGESTIONS_MAX = 3;

/** The nearest names, best first; empty when nothing is near. */
export function nearNames(given: string, names: readonly string[]): readonly string[] {
  const wanted = given.toLowerCase();
  const limit = Math.max(1, Math.floor(wanted.length / 3));
  return names
    .map((name) => ({ name, distance: distanceWithin(wanted, name.toLowerCase(), limit) }))
    .filter(
      ({ name, distance }) =>
        distance <= limit || (wanted.length >= 3 && name.toLowerCase().includes(wanted)),
    )
    .sort((a, b) => a.distance - b.distance || (a.name < b.name ? -1 : 1))
    .slice(0, SUGGESTIONS_MAX)
    .map(({ name }) => name);
}

/** Edits between two words (insert, delete, replace, swap of neighbours); `limit + 1` when there are more than `limit`. */
function distanceWithin(a: string, b: string, limit: number): number {
  if (Math.abs(a.length - b.length) > limit) return limit + 1;
  let beforeLast: number[] = [];
  let last = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const cost = a[i - 1] === b[j - 1] ? 0 : 1;
      let best = Math.min((last[j] ?? 0) + 1, (row[j - 1] ?? 0) + 1, (last[j - 1] ?? 0) + cost);
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) {
        best = Math.min(best, (beforeLast[j - 2] ?? 0) + 1);
      }
      row.push(best);
    }
    [beforeLast, last] = [last, row];
  }
  return Math.min(last[b.length] ?? limit + 1, limit + 1);
}
