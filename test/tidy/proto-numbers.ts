/** The numbers of the agent protocol: what the wire says instead of names, so what may never get another meaning. */

/** One numbered thing: type and name of a field (with its oneof), or the name of an enum's value. */
export type ProtoNumbers = Readonly<Record<string, Readonly<Record<string, string>>>>;

export interface ProtoShape {
  readonly numbers: ProtoNumbers;
  /** Numbers and names that each block has given up for good. */
  readonly reserved: Readonly<Record<string, readonly string[]>>;
}

/** Reads the messages and enums of a proto3 text in which every declaration has a line of its own. */
export function readProto(text: string): ProtoShape {
  const numbers: Record<string, Record<string, string>> = {};
  const reserved: Record<string, string[]> = {};
  let block = '';
  let oneof = '';
  for (const raw of text.split('\n')) {
    const line = raw.replace(/\/\/.*$/, '').trim();
    const [, name] = /^(?:message|enum) (\w+) \{$/.exec(line) ?? [];
    const [, group] = /^oneof (\w+) \{$/.exec(line) ?? [];
    const [, type, field, number] = /^(?:(.+) )?(\w+) = (\d+)(?: \[.*\])?;$/.exec(line) ?? [];
    const [, given] = /^reserved (.+);$/.exec(line) ?? [];
    if (name !== undefined) numbers[(block = name)] = {};
    else if (group !== undefined) oneof = `${group}: `;
    else if (line === '}') [oneof, block] = oneof === '' ? ['', ''] : ['', block];
    else if (given !== undefined) (reserved[block] ??= []).push(...reservedWords(given));
    else if (block !== '' && number !== undefined && field !== undefined) {
      const known = numbers[block] ?? {};
      if (known[number] !== undefined) throw new Error(`${block}: ${number} is given twice`);
      known[number] = type === undefined ? field : `${oneof}${type} ${field}`;
    } else if (block !== '' && line !== '') throw new Error(`not understood in ${block}: ${line}`);
  }
  return { numbers, reserved };
}

function reservedWords(text: string): readonly string[] {
  return text.split(',').flatMap((part) => {
    const word = part.trim().replaceAll('"', '');
    const [, first, last] = /^(\d+) to (\d+)$/.exec(word) ?? [];
    if (first === undefined || last === undefined) return [word];
    return Array.from({ length: Number(last) - Number(first) + 1 }, (_, index) =>
      String(Number(first) + index),
    );
  });
}

/** What has another meaning than it had in the lock, is missing without being reserved, or is not locked yet; one sentence each. */
export function proveNumbers(lock: ProtoNumbers, { numbers, reserved }: ProtoShape): readonly string[] {
  const broken: string[] = [];
  for (const [block, locked] of Object.entries(lock)) {
    for (const [number, meaning] of Object.entries(locked)) {
      const now = numbers[block]?.[number];
      const given = reserved[block]?.includes(number) === true;
      if (now === meaning || (now === undefined && given)) continue;
      broken.push(
        now === undefined
          ? `${block} ${number} (${meaning}) is gone: say "reserved ${number};" in its place`
          : `${block} ${number} was "${meaning}" and is "${now}": take a new number, old agents read this one as before`,
      );
    }
  }
  for (const [block, present] of Object.entries(numbers))
    for (const [number, meaning] of Object.entries(present))
      if (lock[block]?.[number] === undefined)
        broken.push(`${block} ${number} is new: add "${number}": "${meaning}" to it in the lock`);
  return broken;
}
