/** A parsed JSON object whose members are not known yet. */
export type JsonObject = Readonly<Record<string, unknown>>;

/** The value when it is a plain object, else an empty one: missing and wrongly typed parts read as absent. */
export function objectOf(value: unknown): JsonObject {
  return isObject(value) ? value : {};
}

export function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

export function arrayOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

export function stringOf(value: unknown): string | undefined {
  return typeof value === 'string' ? value : undefined;
}

export function numberOf(value: unknown): number | undefined {
  return typeof value === 'number' && Number.isFinite(value) ? value : undefined;
}

/** A string, or the strings of a list; anything else reads as none. */
export function stringsOf(value: unknown): string[] {
  if (typeof value === 'string') return [value];
  return arrayOf(value).filter((item) => typeof item === 'string');
}

/** Parses bytes as JSON and gives the object, or a message that says what is wrong. */
export function parseJsonObject(
  bytes: Buffer,
): { readonly object: JsonObject } | { readonly problem: string } {
  try {
    const value: unknown = JSON.parse(bytes.toString());
    return isObject(value) ? { object: value } : { problem: 'the body is not a JSON object' };
  } catch (error) {
    return { problem: error instanceof Error ? error.message : String(error) };
  }
}
