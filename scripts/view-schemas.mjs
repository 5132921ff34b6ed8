// Writes src/admin-api/view-schemas.ts: JSON schemas of the admin API's answers, read from the types in src/admin-api/views.
// The types are the truth; a test runs this with --check and fails when the written file is behind.
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import * as prettier from 'prettier';
import ts from 'typescript';

const ROOT = join(dirname(fileURLToPath(import.meta.url)), '..');
const VIEWS = 'src/admin-api/views';
const SOURCES = [
  ...readdirSync(join(ROOT, VIEWS))
    .sort()
    .map((file) => `${VIEWS}/${file}`),
  'src/router/explanation.ts',
  'src/metrics/process.metrics.ts',
];
const ROOT_TYPES = /View$|^RequestExplanation$|^EventLoopDelay$/;
const TARGET = join(ROOT, 'src/admin-api/view-schemas.ts');

/** The file's content as the types have it now. */
export async function generateViewSchemas() {
  const config = ts.readConfigFile(join(ROOT, 'tsconfig.json'), (path) => ts.sys.readFile(path)).config;
  const { options } = ts.convertCompilerOptionsFromJson(config.compilerOptions, ROOT);
  const program = ts.createProgram(
    SOURCES.map((path) => join(ROOT, path)),
    { ...options, noEmit: true },
  );
  const schemas = new SchemaWriter(program.getTypeChecker());
  for (const path of SOURCES) schemas.addExports(program.getSourceFile(join(ROOT, path)));
  const lines = Object.entries(schemas.sorted()).map(
    ([name, schema]) => `  ${name}: ${JSON.stringify(JSON.stringify(schema))},`,
  );
  const text = `// Written by scripts/view-schemas.mjs from the types of the answers. Do not edit: run \`npm run schemas\`.
/** JSON schemas of the admin API's answers as text, by the name of their type; a line each. */
const TEXTS = {
${lines.join('\n')}
} as const;

/** Name of an answer's type. */
export type ViewName = keyof typeof TEXTS;

/** JSON schemas of the admin API's answers, by the name of their type. */
export const VIEW_SCHEMAS = Object.fromEntries(
  Object.entries(TEXTS).map(([name, text]) => [name, JSON.parse(text) as object]),
) as Readonly<Record<ViewName, object>>;
`;
  const style = await prettier.resolveConfig(TARGET);
  return prettier.format(text, { ...style, parser: 'typescript' });
}

class SchemaWriter {
  schemas = new Map();

  constructor(checker) {
    this.checker = checker;
  }

  sorted() {
    return Object.fromEntries([...this.schemas].sort(([a], [b]) => (a < b ? -1 : 1)));
  }

  addExports(source) {
    const symbol = this.checker.getSymbolAtLocation(source);
    for (const exported of this.checker.getExportsOfModule(symbol)) {
      const target =
        exported.flags & ts.SymbolFlags.Alias ? this.checker.getAliasedSymbol(exported) : exported;
      const isInterface = (target.flags & ts.SymbolFlags.Interface) !== 0;
      // ListView is a shape with a hole; the routes fill it.
      if (!isInterface || !ROOT_TYPES.test(exported.name) || exported.name === 'ListView') continue;
      // Under the name it was declared with: a re-export under another one is the same type.
      this.define(target.name, this.checker.getDeclaredTypeOfSymbol(target));
    }
  }

  define(name, type) {
    if (this.schemas.has(name)) return;
    // Entered before it is known, so that a type may hold itself.
    this.schemas.set(name, {});
    this.schemas.set(name, this.object(type));
  }

  schema(type) {
    const { checker } = this;
    if (type.flags & ts.TypeFlags.Unknown) return {};
    const withoutUndefined = checker.getNonNullableType(type);
    if (withoutUndefined !== type && !type.isUnion()) return this.schema(withoutUndefined);
    if (type.isUnion()) return this.union(type);
    if (type.isStringLiteral() || type.isNumberLiteral()) return { const: type.value };
    if (type.flags & ts.TypeFlags.BooleanLiteral) return { const: checker.typeToString(type) === 'true' };
    if (type.flags & ts.TypeFlags.StringLike) return { type: 'string' };
    if (type.flags & ts.TypeFlags.NumberLike) return { type: 'number' };
    if (type.flags & ts.TypeFlags.BooleanLike) return { type: 'boolean' };
    if (checker.isArrayType(type))
      return { type: 'array', items: this.schema(checker.getTypeArguments(type)[0]) };
    const name = type.aliasSymbol?.name ?? type.symbol?.name;
    const named =
      name !== undefined && !name.startsWith('__') && !['Partial', 'Readonly', 'Record'].includes(name);
    if (!named) return this.object(type);
    this.define(name, type);
    return { $ref: `#/components/schemas/${name}` };
  }

  union(type) {
    const parts = type.types.filter((part) => !(part.flags & (ts.TypeFlags.Undefined | ts.TypeFlags.Null)));
    if (parts.every((part) => part.flags & ts.TypeFlags.BooleanLiteral)) return { type: 'boolean' };
    if (parts.every((part) => part.isStringLiteral()))
      return { type: 'string', enum: parts.map((part) => part.value) };
    const schemas = parts.map((part) => this.schema(part));
    return schemas.length === 1 ? schemas[0] : { anyOf: schemas };
  }

  object(type) {
    const { checker } = this;
    const index = checker.getIndexTypeOfType(type, ts.IndexKind.String);
    if (index !== undefined) return { type: 'object', additionalProperties: this.schema(index) };
    const properties = {};
    const required = [];
    for (const property of checker.getPropertiesOfType(type)) {
      const documentation = ts
        .displayPartsToString(property.getDocumentationComment(checker))
        .replace(/\s+/g, ' ');
      const held = checker.getTypeOfSymbol(property);
      const schema = this.schema(held);
      properties[property.name] = documentation === '' ? schema : { ...schema, description: documentation };
      // JSON leaves out what is undefined, whether its name had to be written or not.
      const mayLack =
        held.isUnion() && held.types.some((part) => (part.flags & ts.TypeFlags.Undefined) !== 0);
      if (!mayLack && !(property.flags & ts.SymbolFlags.Optional)) required.push(property.name);
    }
    return { type: 'object', properties, ...(required.length === 0 ? {} : { required }) };
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const text = await generateViewSchemas();
  if (!process.argv.includes('--check')) writeFileSync(TARGET, text);
  else if (readFileSync(TARGET, 'utf8') !== text) {
    process.stderr.write('src/admin-api/view-schemas.ts is behind its types: run `npm run schemas`\n');
    process.exitCode = 1;
  }
}
