/** Keeping one copy of what is told again and again. */

/**
 * What to keep of `fresh` when `known` is kept already: every part that equals the one at the same place in `known` is that one,
 * everything else is a copy. So nothing of a message outlives its handling. If the message itself were kept until the next one
 * comes, it would survive the young generation, V8 would even begin to make such objects in the old one, and a fleet that only
 * sends heartbeats would fill the heap with copies of what did not change. Neither argument is touched; both are plain data.
 */
export function keep<T>(known: unknown, fresh: T): T {
  if (typeof fresh !== 'object' || fresh === null) return known === fresh ? (known as T) : fresh;
  return (Array.isArray(fresh) ? keepList(known, fresh) : keepFields(known, fresh as Fields)) as T;
}

type Fields = Readonly<Record<string, unknown>>;

function keepList(known: unknown, fresh: readonly unknown[]): readonly unknown[] {
  const before: readonly unknown[] = Array.isArray(known) ? known : NOTHING;
  let same = before === known && before.length === fresh.length;
  const kept = fresh.map((item, index) => {
    const one = keep(before[index], item);
    same &&= one === before[index];
    return one;
  });
  return same ? before : kept;
}

function keepFields(known: unknown, fresh: Fields): Fields {
  const isLike = typeof known === 'object' && known !== null && !Array.isArray(known);
  const before: Fields = isLike ? (known as Fields) : NO_FIELDS;
  const names = Object.keys(fresh);
  let same = isLike && names.length === Object.keys(before).length;
  const kept: Record<string, unknown> = { ...fresh };
  for (const name of names) {
    const one = keep(before[name], fresh[name]);
    same &&= one === before[name] && Object.hasOwn(before, name);
    kept[name] = one;
  }
  return same ? before : kept;
}

const NOTHING: readonly unknown[] = [];
const NO_FIELDS: Fields = {};
