import { SetMetadata } from '@nestjs/common';
import type { ViewName } from './view-schemas.js';

export const DOC_METADATA = 'llmgw:doc';

/** What the API document says of a route beyond what the code shows. */
export interface RouteDoc {
  /** One sentence. */
  readonly summary: string;
  /** Type of the answer; absent for answers that are no JSON, and for JSON whose form is another's. */
  readonly returns?: ViewName;
  /** The answer is a JSON object of a form that others have laid down: what tools read it as. */
  readonly foreign?: string;
  /** Statuses beside the usual one that have the same content, with what each says. */
  readonly alsoWith?: Readonly<Record<number, string>>;
  /** The answer is a list of them. */
  readonly list?: boolean;
  /** Other content types the answer can have. */
  readonly alsoAs?: readonly string[];
}

/** Describes a route for the API document. */
export const Doc = (doc: RouteDoc) => SetMetadata(DOC_METADATA, doc);
