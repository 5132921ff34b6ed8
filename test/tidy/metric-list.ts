/** The metrics that the code declares, read from its syntax: nothing is started to write the document. */
import ts from 'typescript';
import type { TextFile } from './repository.js';

export interface MetricEntry {
  readonly name: string;
  readonly type: string;
  readonly labels: readonly string[];
  readonly help: string;
}

/** What a helper of the metrics files makes, and the labels it always sets. */
const HELPERS: Readonly<Record<string, { readonly type?: string; readonly labels: readonly string[] }>> = {
  Counter: { type: 'counter', labels: [] },
  Gauge: { type: 'gauge', labels: [] },
  Histogram: { type: 'histogram', labels: [] },
  gauge: { type: 'gauge', labels: [] },
  counter: { type: 'counter', labels: [] },
  single: { type: 'counter', labels: [] },
  counts: { type: 'counter', labels: ['model'] },
  histogram: { type: 'histogram', labels: ['model'] },
  endpoints: { labels: ['endpoint'] },
};

const NAME = /^llmgw_[a-z0-9_]+$/;

export function metricsOf(files: readonly TextFile[]): MetricEntry[] {
  const found: MetricEntry[] = [];
  for (const { path, text } of files) {
    const source = ts.createSourceFile(path, text, ts.ScriptTarget.ES2023, true);
    const visit = (node: ts.Node): void => {
      const entry = ts.isObjectLiteralExpression(node)
        ? fromObject(node)
        : ts.isCallExpression(node)
          ? fromCall(node)
          : undefined;
      if (entry !== undefined) found.push(entry);
      ts.forEachChild(node, visit);
    };
    visit(source);
  }
  return found.toSorted((a, b) => a.name.localeCompare(b.name));
}

/** `{ name, help, labelNames }` handed to a constructor, or a family with its type and a reader. */
function fromObject(node: ts.ObjectLiteralExpression): MetricEntry | undefined {
  const property = (key: string): ts.Expression | undefined =>
    node.properties.flatMap((one) =>
      ts.isPropertyAssignment(one) && one.name.getText() === key ? [one.initializer] : [],
    )[0];
  const name = stringOf(property('name'));
  const help = stringOf(property('help'));
  if (name === undefined || help === undefined || !NAME.test(name)) return undefined;
  const maker = ts.isNewExpression(node.parent) ? node.parent.expression.getText() : '';
  const type = stringOf(property('type')) ?? HELPERS[maker]?.type ?? 'unknown';
  const declared = listOf(property('labelNames'));
  const readBody = property('read')?.getText() ?? '';
  return { name, type, help, labels: declared.length > 0 ? declared : labelsRead(readBody) };
}

/** `counts('llmgw_x', 'Help.', 'label', ...)` and the like. */
function fromCall(node: ts.CallExpression): MetricEntry | undefined {
  const [first, second, third] = node.arguments;
  const name = stringOf(first);
  const help = stringOf(second);
  const helper = HELPERS[node.expression.getText()];
  if (name === undefined || help === undefined || helper === undefined || !NAME.test(name)) return undefined;
  const third_ = stringOf(third);
  const type = helper.type ?? third_ ?? 'unknown';
  const extra = third_ !== undefined && third_ !== type ? [third_] : listOf(third);
  return { name, type, help, labels: [...helper.labels, ...extra] };
}

/** Labels that a reader puts on its samples. */
function labelsRead(body: string): string[] {
  const labels = new Set<string>();
  for (const [, inside] of body.matchAll(/labels: \{([^}]*)\}/g))
    keysOf(inside!).forEach((key) => labels.add(key));
  for (const [, inside] of body.matchAll(/histogramSamples\('[^']*', \{([^}]*)\}/g))
    keysOf(inside!).forEach((key) => labels.add(key));
  for (const [, label, inside] of body.matchAll(/countSamples\([^,]*, '(\w+)', \{([^}]*)\}/g)) {
    keysOf(inside!).forEach((key) => labels.add(key));
    labels.add(label!);
  }
  return [...labels];
}

const keysOf = (inside: string): string[] => [...inside.matchAll(/(?:^|,)\s*(\w+)/g)].map(([, key]) => key!);

const stringOf = (node: ts.Node | undefined): string | undefined =>
  node !== undefined && ts.isStringLiteralLike(node) ? node.text : undefined;

function listOf(node: ts.Node | undefined): string[] {
  if (node === undefined || !ts.isArrayLiteralExpression(node)) return [];
  return node.elements.flatMap((element) => stringOf(element) ?? []);
}
