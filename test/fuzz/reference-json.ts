/** A member of an object as text. */
export interface ReferenceMember {
  readonly key: string;
  readonly value: string;
}

/** The outermost members of an object that JSON.parse has accepted, in order, doubles included. */
export function referenceMembers(text: string): ReferenceMember[] {
  const members: ReferenceMember[] = [];
  const inside = text.trim().slice(1, -1);
  let key: string | undefined;
  let piece = '';
  const finish = () => {
    if (key !== undefined) members.push({ key: JSON.parse(key) as string, value: piece.trim() });
    key = undefined;
    piece = '';
  };
  eachByDepth(inside, (char, depth, inString) => {
    if (depth === 0 && !inString && char === ':' && key === undefined) {
      key = piece;
      piece = '';
    } else if (depth === 0 && !inString && char === ',') finish();
    else piece += char;
  });
  finish();
  return members;
}

/** The deepest nesting of brackets outside strings, in text that may be broken. */
export function referenceDepth(text: string): number {
  let deepest = 0;
  eachByDepth(text, (_char, depth) => (deepest = Math.max(deepest, depth)));
  return deepest;
}

function eachByDepth(text: string, visit: (char: string, depth: number, inString: boolean) => void): void {
  let depth = 0;
  let inString = false;
  let escaped = false;
  for (const char of text) {
    if (inString) {
      visit(char, depth, true);
      if (escaped) escaped = false;
      else if (char === '\\') escaped = true;
      else if (char === '"') inString = false;
      continue;
    }
    if (char === '"') inString = true;
    if (char === '{' || char === '[') depth++;
    visit(char, depth, false);
    if (char === '}' || char === ']') depth--;
  }
}
