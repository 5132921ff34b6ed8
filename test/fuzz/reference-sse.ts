/** One event as a slow reader sees it. Text is latin1: one character per byte. */
export interface ReferenceEvent {
  /** All its bytes, the blank line included. */
  readonly raw: string;
  readonly name: string;
  /** Lines of data joined, undefined when there is none. */
  readonly data: string | undefined;
  readonly dataLines: number;
}

export interface ReferenceStream {
  readonly events: ReferenceEvent[];
  /** What follows the last complete event. */
  readonly rest: string;
}

/** Splits a whole stream into events: lines by pattern, events by empty lines, nothing kept between calls. */
export function referenceEvents(text: string): ReferenceStream {
  const events: ReferenceEvent[] = [];
  let rest = '';
  for (const [line] of text.matchAll(/[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+$/g)) {
    rest += line;
    if (!/^[\r\n]/.test(line)) continue;
    events.push(referenceEvent(rest, events.length === 0));
    rest = '';
  }
  return { events, rest };
}

export function referenceEvent(raw: string, first: boolean): ReferenceEvent {
  const data: string[] = [];
  let name = '';
  for (const line of raw.replace(first ? /^\xef\xbb\xbf/ : '', '').split(/\r\n|\r|\n/)) {
    const [, field, value] = /^([^:]*):? ?(.*)$/s.exec(line) ?? [];
    if (field === 'data') data.push(value ?? '');
    else if (field === 'event') name = value ?? '';
  }
  return { raw, name, data: data.length > 0 ? data.join('\n') : undefined, dataLines: data.length };
}

export function referencePosition({ rest }: ReferenceStream): 'boundary' | 'mid_event' | 'mid_line' {
  if (rest === '') return 'boundary';
  return /[\r\n]$/.test(rest) ? 'mid_event' : 'mid_line';
}

/** Data as JSON, undefined if it is none. */
export function referenceJson({ data }: ReferenceEvent): unknown {
  try {
    return JSON.parse(Buffer.from(data ?? '', 'latin1').toString());
  } catch {
    return undefined;
  }
}
