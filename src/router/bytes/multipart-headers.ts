/** What the headers of one part of a form say. */
export interface FormDisposition {
  readonly name: string;
  /** It carries a file name. */
  readonly isFile: boolean;
  /** It announces a transfer encoding under which its bytes are not its value. */
  readonly isEncoded: boolean;
}

/**
 * Reads the headers of a part: `text` is its header lines without the last CR LF, as latin1. Undefined if they are not
 * the headers of a form field, or if two readers could take a different name from them: no or two dispositions, no or
 * two names, a folded line, a name in RFC 2231 form (`name*=`), a name that only is `model` once unescaped.
 */
export function parseFormDisposition(text: string): FormDisposition | undefined {
  let disposition: string | undefined;
  let isEncoded = false;
  for (const line of text.split('\r\n')) {
    const [, name, value] = HEADER.exec(line) ?? [];
    if (name === undefined || value === undefined) return undefined;
    switch (name.toLowerCase()) {
      case 'content-disposition':
        if (disposition !== undefined) return undefined;
        disposition = value;
        break;
      case 'content-transfer-encoding':
        isEncoded = !/^(?:7bit|8bit|binary)$/i.test(value);
        break;
      default:
    }
  }
  const parameters = disposition === undefined ? undefined : formDataParameters(disposition);
  const name = parameters?.get('name');
  if (parameters === undefined || name === undefined || parameters.has('name*')) return undefined;
  return { name, isFile: parameters.has('filename') || parameters.has('filename*'), isEncoded };
}

/** A header line; a value holds no control characters but TAB. */
// oxlint-disable-next-line no-control-regex
const HEADER = /^([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([^\0-\x08\x0a-\x1f\x7f]*?)[ \t]*$/;

/** One parameter, from where the last one ended. */
const PARAMETER =
  /[ \t]*;[ \t]*([!#$%&'*+\-.^_`|~0-9A-Za-z]+)[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]+))/y;

/** Parameters by lower-case name, undefined if it is no form-data disposition or one is doubled. */
function formDataParameters(disposition: string): Map<string, string> | undefined {
  const kind = /^form-data(?=[ \t]*(?:;|$))/i.exec(disposition);
  if (kind === null) return undefined;
  const parameters = new Map<string, string>();
  PARAMETER.lastIndex = kind[0].length;
  for (;;) {
    const from = PARAMETER.lastIndex;
    const match = PARAMETER.exec(disposition);
    if (match === null) return /^[ \t;]*$/.test(disposition.slice(from)) ? parameters : undefined;
    const name = (match[1] ?? '').toLowerCase();
    const value = match[2] ?? match[3] ?? '';
    if (parameters.has(name) || (name === 'name' && isDisguised(value))) return undefined;
    parameters.set(name, value);
  }
}

/** Readers disagree on backslashes and percent signs in names (browsers write %22 for a quote). */
function isDisguised(name: string): boolean {
  if (name === 'model') return false;
  const unescaped = name
    .replace(/\\(.)/g, '$1')
    .replace(/%([0-9a-f]{2})/gi, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
  return unescaped === 'model';
}
