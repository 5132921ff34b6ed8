/** The API's own description, OpenAPI 3.1, made from the controllers themselves: what is not declared there is not in it. */
import { RequestMethod, type Type } from '@nestjs/common';
import {
  HTTP_CODE_METADATA,
  METHOD_METADATA,
  PATH_METADATA,
  ROUTE_ARGS_METADATA,
} from '@nestjs/common/constants.js';
import { getMetadataStorage } from 'class-validator';
import type { ValidationMetadata } from 'class-validator/types/metadata/ValidationMetadata.js';
import { DOC_METADATA, type RouteDoc } from './api-doc.js';
import { ROLE_METADATA, type Role } from './roles.js';
import { VIEW_SCHEMAS } from './view-schemas.js';

/** One route as its controller declares it. */
export interface DeclaredRoute {
  /** As OpenAPI writes it: `/admin/v1/nodes/{id}`. */
  readonly path: string;
  readonly method: string;
  /** Of an answer that is no error. */
  readonly status: number;
  readonly handler: string;
  readonly role: Role | 'open' | undefined;
  readonly doc: RouteDoc | undefined;
  readonly body: Type | undefined;
  readonly query: Type | undefined;
  /** Query parameters taken one by one. */
  readonly queryNames: readonly string[];
}

/** Nest's numbers for where a handler's argument comes from. */
const FROM_BODY = 3;
const FROM_QUERY = 4;

/** Every route of the controllers. */
export function declaredRoutes(controllers: readonly Type[]): readonly DeclaredRoute[] {
  return controllers.flatMap((controller) => {
    const prefixes = paths(Reflect.getMetadata(PATH_METADATA, controller));
    return handlersOf(controller).flatMap(({ name, handler }) =>
      prefixes.flatMap((prefix) =>
        paths(Reflect.getMetadata(PATH_METADATA, handler)).map((path) => ({
          path: join(prefix, path),
          method: RequestMethod[Number(Reflect.getMetadata(METHOD_METADATA, handler))] ?? 'GET',
          status: statusOf(handler),
          handler: `${controller.name}.${name}`,
          role: metadata<Role | 'open'>(ROLE_METADATA, handler, controller),
          doc: metadata<RouteDoc>(DOC_METADATA, handler, controller),
          ...argumentsOf(controller, name),
        })),
      ),
    );
  });
}

/** The document. */
export function buildOpenApi(routes: readonly DeclaredRoute[], version: string): object {
  const documented = routes.filter((route) => route.doc !== undefined);
  const byPath: Record<string, Record<string, object>> = {};
  for (const route of documented) (byPath[route.path] ??= {})[route.method.toLowerCase()] = operation(route);
  return {
    openapi: '3.1.0',
    info: { title: 'llmgw admin API', version },
    paths: byPath,
    components: {
      schemas: VIEW_SCHEMAS,
      securitySchemes: { token: { type: 'http', scheme: 'bearer' } },
    },
  };
}

function operation(route: DeclaredRoute): object {
  const { doc, role } = route;
  const [, name = ''] = route.handler.split('.');
  return {
    operationId: name,
    summary: doc?.summary,
    ...(role === 'open' ? {} : { security: [{ token: [] }], 'x-role': role }),
    parameters: [...pathParameters(route), ...queryParameters(route)],
    ...(route.body === undefined
      ? {}
      : {
          requestBody: {
            required: 'required' in dtoSchema(route.body),
            content: { 'application/json': { schema: dtoSchema(route.body) } },
          },
        }),
    responses: {
      [route.status]: { description: 'The answer.', content: content(doc) },
      ...Object.fromEntries(
        Object.entries(doc?.alsoWith ?? {}).map(([status, description]) => [
          status,
          { description, content: content(doc) },
        ]),
      ),
      default: {
        description: 'What went wrong, with a code.',
        content: { 'application/json': { schema: reference('ErrorView') } },
      },
    },
  };
}

function content(doc: RouteDoc | undefined): object {
  if (doc?.foreign !== undefined)
    return {
      'application/json': {
        schema: { type: 'object', additionalProperties: true, description: doc.foreign },
      },
    };
  const one = doc?.returns === undefined ? undefined : reference(doc.returns);
  const schema =
    one === undefined || doc?.list !== true
      ? one
      : { type: 'object', properties: { items: { type: 'array', items: one } }, required: ['items'] };
  return {
    ...(schema === undefined ? {} : { 'application/json': { schema } }),
    ...Object.fromEntries((doc?.alsoAs ?? []).map((type) => [type, { schema: { type: 'string' } }])),
  };
}

const reference = (name: string) => ({ $ref: `#/components/schemas/${name}` });

function pathParameters(route: DeclaredRoute): readonly object[] {
  return [...route.path.matchAll(/\{(\w+)\}/g)].map((match) => ({
    name: match[1],
    in: 'path',
    required: true,
    schema: { type: 'string' },
  }));
}

function queryParameters(route: DeclaredRoute): readonly object[] {
  const fromDto = route.query === undefined ? [] : Object.entries(dtoProperties(route.query).properties);
  return [
    ...fromDto.map(([name, schema]) => ({ name, in: 'query', required: false, schema })),
    ...route.queryNames.map((name) => ({ name, in: 'query', required: false, schema: { type: 'string' } })),
  ];
}

// ---------------------------------------------------------------- what the validation knows

function dtoSchema(type: Type): object {
  const { properties, required } = dtoProperties(type);
  return {
    type: 'object',
    properties,
    additionalProperties: false,
    ...(required.length === 0 ? {} : { required }),
  };
}

function dtoProperties(type: Type): { properties: Record<string, object>; required: readonly string[] } {
  const rules = getMetadataStorage().getTargetValidationMetadatas(type, '', true, false);
  const names = [...new Set(rules.map((rule) => rule.propertyName))];
  const of = (name: string) => rules.filter((rule) => rule.propertyName === name);
  return {
    properties: Object.fromEntries(names.map((name) => [name, ruleSchema(of(name))])),
    required: names.filter((name) => of(name).every((rule) => rule.type !== 'conditionalValidation')),
  };
}

function ruleSchema(rules: readonly ValidationMetadata[]): object {
  const own = rules.filter((rule) => !rule.each).map(schemaOfRule);
  const ofItems = rules.filter((rule) => rule.each).map(schemaOfRule);
  const items = ofItems.length === 0 ? {} : { items: Object.assign({}, ...ofItems) as object };
  return Object.assign({}, ...own, items) as object;
}

/** The part of a schema that one validation rule stands for. */
function schemaOfRule(rule: ValidationMetadata): object {
  const [first] = rule.constraints ?? [];
  switch (rule.name) {
    case 'isIn':
      return { type: 'string', enum: first };
    case 'isString':
      return { type: 'string' };
    case 'isArray':
      return { type: 'array' };
    case 'arrayMaxSize':
      return { maxItems: first };
    case 'minLength':
      return { minLength: first };
    case 'isBoolean':
      return { type: 'boolean' };
    case 'isInt':
      return { type: 'integer' };
    case 'min':
      return { minimum: first };
    case 'max':
      return { maximum: first };
    case 'maxLength':
      return { maxLength: first };
    case undefined:
      // Rules of our own have no name; they are all about texts (durations).
      return rule.type === 'customValidation' ? { type: 'string' } : {};
    default:
      return {};
  }
}

// ---------------------------------------------------------------- what Nest knows

function statusOf(handler: object): number {
  const said = Reflect.getMetadata(HTTP_CODE_METADATA, handler) as number | undefined;
  const posted = Number(Reflect.getMetadata(METHOD_METADATA, handler)) === Number(RequestMethod.POST);
  return said ?? (posted ? 201 : 200);
}

function handlersOf(controller: Type): readonly { readonly name: string; readonly handler: object }[] {
  const prototype = controller.prototype as Record<string, unknown>;
  return Object.getOwnPropertyNames(prototype).flatMap((name) => {
    const handler = name === 'constructor' ? undefined : prototype[name];
    if (typeof handler !== 'function' || !Reflect.hasMetadata(METHOD_METADATA, handler)) return [];
    return [{ name, handler }];
  });
}

/** Names of the query parameters a handler takes. */
export function queryNamesOf(controller: Type, name: string): ReadonlySet<string> {
  const { query, queryNames } = argumentsOf(controller, name);
  return new Set([
    ...queryNames,
    ...(query === undefined ? [] : Object.keys(dtoProperties(query).properties)),
  ]);
}

function argumentsOf(controller: Type, name: string): Pick<DeclaredRoute, 'body' | 'query' | 'queryNames'> {
  const types = (Reflect.getMetadata('design:paramtypes', controller.prototype as object, name) ??
    []) as Type[];
  const args = (Reflect.getMetadata(ROUTE_ARGS_METADATA, controller, name) ?? {}) as Record<
    string,
    { readonly index: number; readonly data?: unknown }
  >;
  const from = (kind: number) =>
    Object.entries(args)
      .filter(([key]) => key.startsWith(`${kind}:`))
      .map(([, argument]) => argument);
  const whole = (kind: number) => from(kind).find((argument) => argument.data === undefined);
  const body = whole(FROM_BODY);
  const query = whole(FROM_QUERY);
  return {
    body: body === undefined ? undefined : types[body.index],
    query: query === undefined ? undefined : types[query.index],
    queryNames: from(FROM_QUERY).flatMap((argument) =>
      typeof argument.data === 'string' ? [argument.data] : [],
    ),
  };
}

function metadata<T>(key: string, handler: object, controller: Type): T | undefined {
  return (Reflect.getMetadata(key, handler) ?? Reflect.getMetadata(key, controller)) as T | undefined;
}

function paths(value: unknown): readonly string[] {
  return [value ?? ''].flat().map(String);
}

function join(prefix: string, path: string): string {
  const parts = [prefix, path].flatMap((part) => part.split('/')).filter((part) => part !== '');
  return `/${parts.map((part) => part.replace(/^:(\w+)$/, '{$1}')).join('/')}`;
}
