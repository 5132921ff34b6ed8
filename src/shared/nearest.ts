/**
 * The candidate a mistyped word most likely meant, or undefined when none is near.
 * Case, `_` and `-` do not count, so `admin_listen` finds `adminListen`.
 */
export function nearest(word: string, candidates: Iterable<string>): string | undefined {
  const wanted = squash(word);
  // One slip per three letters: enough for real typing mistakes, too little to suggest the unrelated.
  const limit = Math.max(1, Math.min(3, Math.floor(wanted.length / 3)));
  let best: string | undefined;
  let bestDistance = limit + 1;
  for (const candidate of candidates) {
    const squashed = squash(candidate);
    if (Math.abs(squashed.length - wanted.length) > limit) continue;
    const distance = editDistance(wanted, squashed);
    if (distance < bestDistance) {
      best = candidate;
      bestDistance = distance;
    }
  }
  return best;
}

/** ` (did you mean "x"?)`, or nothing: ready to be put behind a message. */
export function didYouMean(word: string, candidates: Iterable<string>): string {
  const found = nearest(word, candidates);
  return found === undefined ? '' : ` (did you mean "${found}"?)`;
}

const squash = (word: string): string =>
  word
    .toLowerCase()
    .replace(/[_\s-]/g, '')
    .slice(0, 64);

/** Insertions, deletions, substitutions and swaps of neighbours each cost one. */
function editDistance(a: string, b: string): number {
  let beforeLast: number[] = [];
  let last = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const same = a[i - 1] === b[j - 1];
      let cost = Math.min(last[j]! + 1, row[j - 1]! + 1, last[j - 1]! + (same ? 0 : 1));
      const swapped = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      if (swapped) cost = Math.min(cost, beforeLast[j - 2]! + 1);
      row.push(cost);
    }
    beforeLast = last;
    last = row;
  }
  return last[b.length]!;
}
