import type { GatewayError } from './dialects.js';
import type { RequestHead } from './request-head.js';
import type { EngineRoute } from './routes.js';

/** `type/subtype` of a content type, in lower case; empty when there is none. */
export function mediaType(contentType: string | undefined): string {
  // What nearly everybody sends, on every request and answer.
  if (contentType === JSON_TYPE) return JSON_TYPE;
  const end = contentType?.indexOf(';') ?? -1;
  return (end < 0 ? contentType : contentType?.slice(0, end))?.trim().toLowerCase() ?? '';
}

const JSON_TYPE = 'application/json';

export const isJsonType = (type: string): boolean => type === JSON_TYPE || type.endsWith('+json');

export const isMultipartType = (type: string): boolean => type === 'multipart/form-data';

/** Why a body of this type or encoding cannot be taken on the route; undefined when it can. */
export function mediaProblem(route: EngineRoute, head: RequestHead): GatewayError | undefined {
  const encoding = head.contentEncoding?.trim().toLowerCase();
  // Unpacking what a client sends means unpacking what an attacker sends: a megabyte of zeros becomes a gigabyte.
  if (encoding !== undefined && encoding !== '' && encoding !== 'identity') {
    return { code: 'unsupported_media_type', message: 'compressed bodies are not accepted' };
  }
  const type = mediaType(head.contentType);
  switch (route.body) {
    case 'json':
      // No type at all is what a bare `curl` or an old script sends; the body's own syntax decides.
      if (type === '' || isJsonType(type)) return undefined;
      return { code: 'unsupported_media_type', message: 'this route takes application/json' };
    case 'multipart':
      if (isMultipartType(type)) return undefined;
      return { code: 'unsupported_media_type', message: 'this route takes multipart/form-data' };
    case 'any':
      if (isJsonType(type) || isMultipartType(type)) return undefined;
      return {
        code: 'unsupported_media_type',
        message: 'this route takes multipart/form-data or application/json',
      };
  }
}
