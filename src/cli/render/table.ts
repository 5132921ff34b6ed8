import { MISSING, displayWidth, fit, plain } from './values.js';
import { paint, toneOf, type Surface, type Tone } from './style.js';

/** A column of a table of `T`. */
export interface Column<T> {
  readonly title: string;
  readonly cell: (item: T, surface: Surface) => string | number | undefined;
  /** Only with `-o wide`. */
  readonly wide?: boolean;
  readonly right?: boolean;
  /** Coloured by the state word that the cell begins with, or by what this says. */
  readonly tone?: 'state' | ((item: T) => Tone | undefined);
  /** May be cut to keep the table within the terminal. */
  readonly shrinks?: boolean;
}

const GAP = '  ';
/** A column that shrinks keeps this much, so that its beginning can be read. */
const MIN_SHRUNK = 12;

/** Lines of a table without borders, each column as wide as its content, without blanks at the ends of lines. */
export function renderTable<T>(
  columns: readonly Column<T>[],
  items: readonly T[],
  surface: Surface,
  options: { readonly wide?: boolean; readonly indent?: string } = {},
): string[] {
  let shown = columns.filter((column) => options.wide === true || column.wide !== true);
  const cells = items.map((item) => shown.map((column) => cellText(column.cell(item, surface))));
  const widths = shown.map(({ title }, at) =>
    Math.max(displayWidth(title), ...cells.map((row) => displayWidth(row[at] ?? ''))),
  );
  if (options.wide !== true && surface.columns !== undefined) {
    const limit = surface.columns - (options.indent ?? '').length;
    shrink(shown, widths, limit);
    // What still does not fit is cut off: a line that wraps cannot be read as part of a table.
    shown = shown.slice(0, clip(widths, limit));
  }
  const line = (row: readonly string[], tones: readonly (Tone | undefined)[]): string =>
    (options.indent ?? '') +
    row
      .slice(0, shown.length)
      .map((text, at) => {
        const cut = fit(text, widths[at]!);
        const room = ' '.repeat(Math.max(0, widths[at]! - displayWidth(cut)));
        const painted = paint(cut, tones[at], surface);
        if (shown[at]!.right === true) return room + painted;
        return at === shown.length - 1 ? painted : painted + room;
      })
      .join(GAP)
      .trimEnd();
  return [
    line(
      shown.map(({ title }) => title),
      shown.map(() => 'dim'),
    ),
    ...items.map((item, index) =>
      line(
        cells[index]!,
        shown.map((column, at) => toneFor(column, item, cells[index]![at]!)),
      ),
    ),
  ];
}

function cellText(value: string | number | undefined): string {
  if (value === undefined || value === '') return MISSING;
  return typeof value === 'number' ? String(value) : plain(value);
}

function toneFor<T>(column: Column<T>, item: T, text: string): Tone | undefined {
  if (column.tone === undefined) return undefined;
  return column.tone === 'state' ? toneOf(/^[A-Za-z]+/.exec(text)?.[0] ?? '') : column.tone(item);
}

/** Takes what is too much from the columns that may shrink, the widest first. */
function shrink<T>(columns: readonly Column<T>[], widths: number[], limit: number): void {
  const total = (): number =>
    widths.reduce((sum, width) => sum + width, 0) + GAP.length * (widths.length - 1);
  const shrinkable = columns.flatMap((column, at) => (column.shrinks === true ? [at] : []));
  while (total() > limit) {
    const widest = shrinkable.toSorted((a, b) => widths[b]! - widths[a]!)[0];
    if (widest === undefined || widths[widest]! <= MIN_SHRUNK) return;
    widths[widest] = Math.max(MIN_SHRUNK, widths[widest]! - (total() - limit));
  }
}

/** Narrows the last columns to what is left of the line; gives how many columns have any room. */
function clip(widths: number[], limit: number): number {
  let left = limit;
  for (const [at, width] of widths.entries()) {
    if (left <= 1) return Math.max(1, at);
    widths[at] = Math.min(width, left);
    left -= widths[at]! + GAP.length;
  }
  return widths.length;
}

/** `Name:  value` lines with the values in one column; absent values are left out. */
export function renderFields(
  fields: readonly (readonly [name: string, value: string | number | undefined, tone?: Tone | undefined])[],
  surface: Surface,
): string[] {
  const present = fields.filter(([, value]) => value !== undefined && value !== '');
  const width = Math.max(0, ...present.map(([name]) => name.length)) + 1;
  return present.map(([name, value, tone]) => {
    const text = plain(String(value));
    return `${paint(`${name}:`.padEnd(width), 'dim', surface)}${GAP}${paint(text, tone, surface)}`;
  });
}
