/** A reader of PromQL that knows enough to say what an expression looks at, and to refuse what is none. */

/** One series selector: the metric and every label that is matched on it. */
export interface Selector {
  readonly metric: string;
  readonly matchers: readonly { readonly label: string; readonly op: string; readonly value: string }[];
}

/** What an expression uses. */
export interface Usage {
  readonly selectors: readonly Selector[];
  /** Labels of `by`, `without`, `on`, `ignoring` and `group_left`. */
  readonly grouping: readonly string[];
}

const AGGREGATIONS = new Set([
  ...['sum', 'min', 'max', 'avg', 'count', 'group', 'stddev', 'stdvar', 'topk', 'bottomk', 'quantile'],
  'count_values',
]);
const FUNCTIONS = new Set([
  ...['rate', 'irate', 'increase', 'delta', 'idelta', 'deriv', 'changes', 'resets', 'predict_linear'],
  ...['histogram_quantile', 'time', 'vector', 'scalar', 'absent', 'absent_over_time', 'abs', 'ceil', 'floor'],
  ...[
    'round',
    'clamp_min',
    'clamp_max',
    'clamp',
    'sort',
    'sort_desc',
    'label_replace',
    'label_join',
    'timestamp',
  ],
  ...[
    'avg_over_time',
    'min_over_time',
    'max_over_time',
    'sum_over_time',
    'count_over_time',
    'last_over_time',
  ],
  'quantile_over_time',
]);
const OPERATORS = new Set([
  ...['+', '-', '*', '/', '%', '^', '==', '!=', '>', '<', '>=', '<=', 'and', 'or', 'unless'],
]);
const TOKEN =
  /\s*(?:("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(\d+(?:ms|[smhdwy])(?:\d+(?:ms|[smhdwy]))*)|(\d+(?:\.\d+)?(?:e[+-]?\d+)?)|([a-zA-Z_][\w:]*)|(==|!=|>=|<=|=~|!~|[-+*/%^<>=(){}[\],:@]))/gy;

interface Token {
  readonly kind: 'string' | 'duration' | 'number' | 'word' | 'sign' | 'end';
  readonly text: string;
}

/** Reads an expression; throws with what is wrong and where. */
export function readPromql(expression: string): Usage {
  return new Reader(expression).read();
}

function tokensOf(expression: string): Token[] {
  const kinds = ['string', 'duration', 'number', 'word', 'sign'] as const;
  const tokens: Token[] = [];
  TOKEN.lastIndex = 0;
  while (expression.slice(TOKEN.lastIndex).trim() !== '') {
    const at = TOKEN.lastIndex;
    const match = TOKEN.exec(expression);
    if (match === null) throw new Error(`cannot read "${expression.slice(at, at + 20)}"`);
    const index = match.slice(1).findIndex((part) => part !== undefined);
    tokens.push({ kind: kinds[index]!, text: match[index + 1]! });
  }
  return tokens;
}

class Reader {
  private readonly tokens: Token[];
  private at = 0;
  private readonly selectors: Selector[] = [];
  private readonly grouping = new Set<string>();

  constructor(expression: string) {
    this.tokens = tokensOf(expression);
  }

  read(): Usage {
    this.expression();
    if (this.peek().kind !== 'end') this.fail('the end');
    return { selectors: this.selectors, grouping: [...this.grouping] };
  }

  private peek(): Token {
    return this.tokens[this.at] ?? { kind: 'end', text: '' };
  }

  private fail(expected: string): never {
    const before = this.tokens.slice(0, this.at).map(({ text }) => text);
    throw new Error(`expected ${expected}, got "${this.peek().text}" behind "${before.join(' ')}"`);
  }

  private take(text?: string): string {
    if (this.peek().kind === 'end' || (text !== undefined && this.peek().text !== text))
      this.fail(text ?? 'more');
    return this.tokens[this.at++]!.text;
  }

  private taken(...texts: readonly string[]): string | undefined {
    return texts.includes(this.peek().text) && this.peek().kind !== 'string' ? this.take() : undefined;
  }

  private expression(): void {
    this.operand();
    while (OPERATORS.has(this.peek().text) && this.peek().kind !== 'string') {
      this.take();
      this.taken('bool');
      if (this.taken('on', 'ignoring') !== undefined) this.labels();
      if (this.taken('group_left', 'group_right') !== undefined && this.peek().text === '(') this.labels();
      this.operand();
    }
  }

  private operand(): void {
    while (this.taken('-', '+') !== undefined);
    this.primary();
    for (;;) {
      if (this.taken('[') !== undefined) {
        this.duration();
        if (this.taken(':') !== undefined && this.peek().text !== ']') this.duration();
        this.take(']');
      } else if (this.taken('offset') !== undefined) this.duration();
      else return;
    }
  }

  private duration(): void {
    if (this.peek().kind !== 'duration') this.fail('a duration');
    this.take();
  }

  private primary(): void {
    const { kind, text } = this.peek();
    if (kind === 'number' || kind === 'string') this.take();
    else if (text === '(') this.arguments_();
    else if (kind !== 'word') this.fail('a value');
    else if (AGGREGATIONS.has(text)) this.aggregation();
    else if (this.tokens[this.at + 1]?.text === '(') this.call();
    else this.selector();
  }

  private aggregation(): void {
    this.take();
    if (this.taken('by', 'without') !== undefined) this.labels();
    this.arguments_();
    if (this.taken('by', 'without') !== undefined) this.labels();
  }

  private call(): void {
    if (!FUNCTIONS.has(this.peek().text)) this.fail('a function');
    this.take();
    this.arguments_();
  }

  private arguments_(): void {
    this.take('(');
    while (this.peek().text !== ')') {
      this.expression();
      if (this.taken(',') === undefined) break;
    }
    this.take(')');
  }

  private labels(): void {
    this.take('(');
    while (this.peek().kind === 'word') {
      this.grouping.add(this.take());
      if (this.taken(',') === undefined) break;
    }
    this.take(')');
  }

  private selector(): void {
    const metric = this.take();
    const matchers: Selector['matchers'][number][] = [];
    if (this.taken('{') !== undefined) {
      while (this.peek().kind === 'word') {
        const label = this.take();
        const op = this.taken('=', '!=', '=~', '!~') ?? this.fail('a matcher');
        if (this.peek().kind !== 'string') this.fail('a string');
        matchers.push({ label, op, value: this.take().slice(1, -1) });
        if (this.taken(',') === undefined) break;
      }
      this.take('}');
    }
    this.selectors.push({ metric, matchers });
  }
}
