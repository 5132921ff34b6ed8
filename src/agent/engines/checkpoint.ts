/**
 * Is a checkpoint whole? A copy or a download that was cut off leaves a directory that looks like a model: the small files
 * come first. An engine finds out minutes later, or loads what is there.
 */
import { open, readdir, readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';

const WEIGHTS = /\.(?:safetensors|bin|pt|pth|gguf|npz)$/i;
const INDEX = /\.(?:safetensors|bin)\.index\.json$/;
/** `model-00002-of-00003.safetensors`, and split GGUF files likewise. */
const PART = /^(.*-)(\d{5})(-of-)(\d{5})(\.\w+)$/;
/** Parts a checkpoint may have; a larger number is not one. */
const PARTS_MAX = 4_096;

/** True when the directory holds a checkpoint, and all of it. */
export async function isWhole(directory: string): Promise<boolean> {
  const present = await filesWithContent(directory);
  return (
    [...present].some((name) => WEIGHTS.test(name)) && (await missingIn(directory, present)) === undefined
  );
}

/** The first file that an index or the numbers of the others ask for and that is not there. */
export async function missingIn(
  directory: string,
  present?: ReadonlySet<string>,
): Promise<string | undefined> {
  present ??= await filesWithContent(directory);
  for (const index of [...present].filter((name) => INDEX.test(name))) {
    const missing = (await indexed(join(directory, index))).find((name) => !present.has(name));
    if (missing !== undefined) return missing;
  }
  for (const name of present) {
    const missing = missingPart(name, present);
    if (missing !== undefined) return missing;
  }
  return undefined;
}

/** The first part of a split file that is not among `present`; undefined for whole ones. */
export function missingPart(name: string, present: ReadonlySet<string>): string | undefined {
  const match = PART.exec(name);
  if (match === null) return undefined;
  const [, head = '', , of = '', total = '', tail = ''] = match;
  for (let part = 1; part <= Math.min(Number(total), PARTS_MAX); part++) {
    const other = `${head}${String(part).padStart(5, '0')}${of}${total}${tail}`;
    if (!present.has(other)) return other;
  }
  return undefined;
}

/** Names of files that hold something; links of the hub's cache are followed to what they name. */
export async function filesWithContent(directory: string): Promise<Set<string>> {
  const names = await readdir(directory).catch(() => []);
  const sizes = await Promise.all(
    names.map((name) =>
      stat(join(directory, name)).then(
        ({ size }) => size,
        () => 0,
      ),
    ),
  );
  return new Set(names.filter((_, index) => (sizes[index] ?? 0) > 0));
}

/** Files that an index names; an index that cannot be read names none, its engine will say more. */
async function indexed(path: string): Promise<string[]> {
  try {
    const { weight_map: map } = JSON.parse(await readFile(path, 'utf8')) as { weight_map?: unknown };
    const files = typeof map === 'object' && map !== null ? Object.values(map) : [];
    return [...new Set(files.filter((file): file is string => typeof file === 'string'))];
  } catch {
    return [];
  }
}

/** A larger header is no header: the format's own readers refuse it too. */
const HEADER_MAX_BYTES = 100_000_000;

/**
 * The first file of these whose content is not what its own header says: a copy that was cut off has the right name and
 * some content. Only the safetensors format tells its size at its beginning.
 */
export async function cutOff(directory: string, names: Iterable<string>): Promise<string | undefined> {
  for (const name of names) {
    if (name.endsWith('.safetensors') && !(await hasItsSize(join(directory, name)))) return name;
  }
  return undefined;
}

async function hasItsSize(path: string): Promise<boolean> {
  const file = await open(path, 'r');
  try {
    const { size } = await file.stat();
    const length = Buffer.alloc(8);
    if ((await file.read(length, 0, 8, 0)).bytesRead < 8) return false;
    const headerBytes = Number(length.readBigUInt64LE());
    if (headerBytes > Math.min(size - 8, HEADER_MAX_BYTES)) return false;
    const header = Buffer.alloc(headerBytes);
    await file.read(header, 0, headerBytes, 8);
    return size >= 8 + headerBytes + dataBytes(header.toString('utf8'));
  } finally {
    await file.close();
  }
}

/** Where the last tensor ends; infinite for a header that is none. */
function dataBytes(header: string): number {
  try {
    const tensors = Object.values(JSON.parse(header) as Record<string, { data_offsets?: unknown }>);
    const ends = tensors.flatMap(({ data_offsets: offsets }) => {
      const end: unknown = Array.isArray(offsets) ? offsets[1] : undefined;
      return typeof end === 'number' ? [end] : [];
    });
    return Math.max(0, ...ends);
  } catch {
    return Number.POSITIVE_INFINITY;
  }
}
