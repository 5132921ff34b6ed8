/**
 * Reads a YAML document into configuration classes. Nothing is skipped and nothing stops at the first mistake:
 * every key is either a setting or a problem with its place in the file.
 */
import { isAlias, isMap, isScalar, isSeq, type Document, type LineCounter, type Node, type Pair } from 'yaml';
import type { ConfigProblem } from '../shared/errors.js';
import { nearest } from '../shared/nearest.js';
import { TEXT_OR_FILE, describeScalar, type ScalarInput, type ScalarKind } from './scalar-kinds.js';
import {
  settingsOf,
  type ElementShape,
  type SettingMeta,
  type SettingShape,
  type SettingsClass,
} from './setting.js';

/** Where a value comes from. */
export interface Origin {
  readonly kind: 'default' | 'file' | 'environment' | 'flag';
  /** File name, variable or flag; empty for defaults. */
  readonly source: string;
  readonly line?: number;
  readonly column?: number;
}

/** What a reading leaves beside the values; shared by file, environment and flags. */
export interface Findings {
  readonly problems: ConfigProblem[];
  readonly warnings: ConfigProblem[];
  /** Origin by full path, for containers too. A path that is missing holds its default. */
  readonly origins: Map<string, Origin>;
}

export interface YamlSource {
  readonly name: string;
  readonly document: Document;
  readonly lines: LineCounter;
}

/** Anchors can multiply a small file into a huge one; a real configuration has a few thousand values. */
const MAX_NODES = 200_000;

const UNREADABLE = Symbol('unreadable');

/** `a` + `b` → `a.b`; keys that are no plain word are quoted. */
export function joinPath(path: string, key: string): string {
  const word = /^[A-Za-z_][\w-]*$/.test(key) ? key : `["${key}"]`;
  if (path === '') return word;
  return word.startsWith('[') ? `${path}${word}` : `${path}.${word}`;
}

export class SettingsReader {
  private nodesLeft = MAX_NODES;

  constructor(
    private readonly source: YamlSource,
    private readonly findings: Findings,
    private readonly root: SettingsClass,
  ) {}

  /** Fills `target` from the document's top level. */
  readInto(target: object): void {
    const top = this.source.document.contents;
    if (top === null || (isScalar(top) && top.value === null)) {
      this.problem(top, '', 'the file is empty: expected a map of settings');
      return;
    }
    this.fill(target, this.root, top as Node, '');
  }

  private fill(target: object, type: SettingsClass, given: Node | null, path: string): void {
    const node = this.resolve(given, path);
    if (!isMap(node)) {
      this.problem(given, path, `expected a map of settings, got ${kindOf(node ?? given)}`);
      return;
    }
    const settings = settingsOf(type);
    for (const [key, pair] of this.entries(node.items, path)) {
      const meta = settings.get(key);
      if (meta === undefined) this.unknownKey(pair.key as Node, path, key, [...settings.keys()]);
      else this.assign(target, meta, pair.value as Node | null, pair.key as Node, joinPath(path, key));
    }
  }

  private assign(target: object, meta: SettingMeta, given: Node | null, keyNode: Node, path: string): void {
    const slots = target as Record<string, unknown>;
    this.mark(path, given ?? keyNode);
    const value = this.read(meta.shape, given, path, slots[meta.key]);
    if (value !== UNREADABLE) slots[meta.key] = value;
  }

  /** `present` is the default that a map or object is read over. */
  private read(shape: SettingShape, given: Node | null, path: string, present?: unknown): unknown {
    if (shape.shape === 'list') return this.readList(shape, given, path);
    if (shape.shape === 'map') return this.readMap(shape, given, path, present);
    return this.readElement(shape, given, path, present);
  }

  private readElement(shape: ElementShape, given: Node | null, path: string, present?: unknown): unknown {
    if (shape.shape === 'scalar') return this.readScalar(shape.kind, given, path);
    if (shape.shape === 'textOrObject') {
      const node = this.resolve(given, path);
      if (!isMap(node)) return this.readScalar(TEXT_OR_FILE, given, path);
    }
    const type = shape.type();
    const target = present instanceof type ? present : new type();
    this.fill(target, type, given, path);
    return target;
  }

  private readScalar(kind: ScalarKind, given: Node | null, path: string): unknown {
    const node = this.resolve(given, path);
    if (node !== null && !isScalar(node)) {
      this.problem(given, path, `expected ${kind.expected}, got ${kindOf(node ?? given)}`);
      return UNREADABLE;
    }
    const parsed = kind.read(scalarInput(node));
    if (parsed.ok) return parsed.value;
    this.problem(given, path, parsed.problem);
    return UNREADABLE;
  }

  private readList(shape: SettingShape & { shape: 'list' }, given: Node | null, path: string): unknown {
    const node = this.resolve(given, path);
    if (!isSeq(node)) {
      this.problem(given, path, `expected a list of ${shape.of}, got ${kindOf(node ?? given)}`);
      return UNREADABLE;
    }
    const values: unknown[] = [];
    node.items.forEach((item, index) => {
      const at = `${path}[${index}]`;
      this.mark(at, item as Node);
      const value = this.readElement(shape.item, item as Node, at);
      if (value !== UNREADABLE) values.push(value);
    });
    // A shortened list would make later findings point at the wrong element.
    return values.length === node.items.length ? values : UNREADABLE;
  }

  private readMap(
    shape: SettingShape & { shape: 'map' },
    given: Node | null,
    path: string,
    present: unknown,
  ): unknown {
    const node = this.resolve(given, path);
    if (!isMap(node)) {
      this.problem(given, path, `expected a map of ${shape.of}, got ${kindOf(node ?? given)}`);
      return UNREADABLE;
    }
    const values: Record<string, unknown> = { ...(present as Record<string, unknown> | undefined) };
    for (const [key, pair] of this.entries(node.items, path)) {
      const at = joinPath(path, key);
      const keyNode = pair.key as Node;
      if (shape.keys !== undefined && !shape.keys.includes(key)) {
        this.unknownKey(keyNode, path, key, shape.keys);
      } else if (!shape.keyRule.pattern.test(key) || key.length > (shape.keyRule.maxLength ?? 255)) {
        this.problem(keyNode, at, `expected ${shape.keyRule.expected} as key, got ${JSON.stringify(key)}`);
      } else {
        this.mark(at, (pair.value as Node | null) ?? keyNode);
        const value = this.readElement(shape.value, pair.value as Node | null, at, values[key]);
        if (value !== UNREADABLE) values[key] = value;
      }
    }
    return values;
  }

  /** The pairs of a map with text keys, each once; everything else is a problem. */
  private *entries(items: readonly Pair[], path: string): Generator<[string, Pair]> {
    const firstLine = new Map<string, number | undefined>();
    for (const pair of items) {
      const key = this.resolve(pair.key as Node | null, path);
      if (!isScalar(key) || typeof key.value !== 'string') {
        const hint = isScalar(key) ? `; quote it: "${scalarInput(key).raw}"` : '';
        this.problem(pair.key as Node | null, path, `expected text as key, got ${kindOf(key)}${hint}`);
        continue;
      }
      if (firstLine.has(key.value)) {
        const first = firstLine.get(key.value);
        const where = first === undefined ? '' : `; first given in line ${first}`;
        this.problem(pair.key as Node, joinPath(path, key.value), `duplicate key${where}`);
        continue;
      }
      firstLine.set(key.value, this.placeOf(pair.key as Node)?.line);
      yield [key.value, pair];
    }
  }

  private unknownKey(keyNode: Node, path: string, key: string, known: readonly string[]): void {
    const near = nearest(key, known);
    const home = near === undefined ? homesOf(this.root, key).find((place) => place !== path) : undefined;
    let message = 'unknown key';
    if (near !== undefined) message += `; did you mean "${near}"?`;
    else if (home !== undefined)
      message += `; "${key}" belongs ${home === '' ? 'at the top level' : `under ${home}`}`;
    else message += `; expected one of ${known.join(', ')}`;
    this.problem(keyNode, joinPath(path, key), message);
  }

  private resolve(node: Node | null, path: string): Node | null {
    if (this.nodesLeft-- === 0) this.problem(node, path, `the file holds more than ${MAX_NODES} values`);
    if (this.nodesLeft < 0) return null;
    if (!isAlias(node)) return node;
    return (node.resolve(this.source.document) as Node | undefined) ?? null;
  }

  private mark(path: string, node: Node | null): void {
    this.findings.origins.set(path, { kind: 'file', source: this.source.name, ...this.placeOf(node) });
  }

  private placeOf(node: Node | null): { line: number; column: number } | undefined {
    const offset = node?.range?.[0];
    if (offset === undefined) return undefined;
    const { line, col } = this.source.lines.linePos(offset);
    return line === 0 ? { line: 1, column: 1 } : { line, column: col };
  }

  private problem(node: Node | null, path: string, message: string): void {
    const place = this.placeOf(node) ?? placeFrom(this.findings.origins.get(path)) ?? { line: 1, column: 1 };
    this.findings.problems.push({ source: this.source.name, ...place, path, message });
  }
}

function placeFrom(origin: Origin | undefined): { line: number; column: number } | undefined {
  if (origin?.line === undefined || origin.column === undefined) return undefined;
  return { line: origin.line, column: origin.column };
}

function scalarInput(node: Node | null): ScalarInput {
  if (!isScalar(node)) return { value: null, raw: '', typed: true, quoted: false };
  const quoted = node.type !== undefined && node.type !== 'PLAIN';
  const raw = node.source ?? (node.value === null ? '' : JSON.stringify(node.value));
  return { value: node.value, raw, typed: true, quoted };
}

function kindOf(node: Node | null): string {
  if (isAlias(node)) return `the unknown anchor *${node.source}`;
  if (isMap(node)) return 'a map';
  if (isSeq(node)) return 'a list';
  return describeScalar(scalarInput(node));
}

/** Paths of the objects that know the key: a wrong indentation puts a right key in a wrong place. */
function homesOf(root: SettingsClass, key: string): string[] {
  const homes: string[] = [];
  const visit = (type: SettingsClass, path: string, depth: number): void => {
    if (depth > 8) return;
    for (const [name, { shape }] of settingsOf(type)) {
      if (name === key) homes.push(path);
      const element = shape.shape === 'list' ? shape.item : shape.shape === 'map' ? shape.value : shape;
      const suffix = shape.shape === 'list' ? '[]' : shape.shape === 'map' ? '.<name>' : '';
      if (element.shape !== 'scalar') visit(element.type(), `${joinPath(path, name)}${suffix}`, depth + 1);
    }
  };
  visit(root, '', 0);
  // Shallow homes first: a key at the wrong depth most often belongs further out.
  return homes.sort((a, b) => a.split('.').length - b.split('.').length || a.length - b.length);
}
