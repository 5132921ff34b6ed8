/** As much of JSON schema as our own schemas use: enough to hold real answers against them. */
interface Schema {
  readonly $ref?: string;
  readonly type?: string;
  readonly const?: unknown;
  readonly enum?: readonly unknown[];
  readonly anyOf?: readonly Schema[];
  readonly items?: Schema;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly additionalProperties?: Schema | boolean;
  readonly required?: readonly string[];
}

/** Everything in `value` that the schema does not allow, each with its path; properties nobody declared count too. */
export function schemaProblems(
  value: unknown,
  schema: object,
  schemas: Readonly<Record<string, object>>,
  path = '$',
): readonly string[] {
  const rule = resolve(schema as Schema, schemas);
  if (rule.anyOf !== undefined) {
    const fits = rule.anyOf.some((one) => schemaProblems(value, one, schemas, path).length === 0);
    return fits ? [] : [`${path}: fits none of the alternatives`];
  }
  if (rule.const !== undefined && rule.const !== value)
    return [`${path}: is not ${JSON.stringify(rule.const)}`];
  if (rule.enum !== undefined && !rule.enum.includes(value))
    return [`${path}: ${JSON.stringify(value)} is not in the list`];
  if (rule.type === undefined) return [];
  if (rule.type === 'array') return arrayProblems(value, rule, schemas, path);
  if (rule.type === 'object') return objectProblems(value, rule, schemas, path);
  const type = rule.type === 'integer' ? 'number' : rule.type;
  return typeof value === type ? [] : [`${path}: is ${typeof value}, not ${rule.type}`];
}

function resolve(schema: Schema, schemas: Readonly<Record<string, object>>): Schema {
  if (schema.$ref === undefined) return schema;
  const found = schemas[schema.$ref.replace('#/components/schemas/', '')];
  if (found === undefined) throw new Error(`no schema ${schema.$ref}`);
  return found as Schema;
}

function arrayProblems(
  value: unknown,
  rule: Schema,
  schemas: Readonly<Record<string, object>>,
  path: string,
) {
  if (!Array.isArray(value)) return [`${path}: is no list`];
  return value.flatMap((item, index) => schemaProblems(item, rule.items ?? {}, schemas, `${path}[${index}]`));
}

function objectProblems(
  value: unknown,
  rule: Schema,
  schemas: Readonly<Record<string, object>>,
  path: string,
) {
  if (typeof value !== 'object' || value === null) return [`${path}: is no object`];
  const missing = (rule.required ?? [])
    .filter((name) => !(name in value))
    .map((name) => `${path}.${name}: is missing`);
  const wrong = Object.entries(value).flatMap(([name, field]) => {
    const own = rule.properties?.[name] ?? rule.additionalProperties;
    if (own === undefined || own === false) return [`${path}.${name}: is not declared`];
    return own === true ? [] : schemaProblems(field, own, schemas, `${path}.${name}`);
  });
  return [...missing, ...wrong];
}
