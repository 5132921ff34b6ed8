import { describe, expect, it } from 'vitest';
import { readPromql } from './promql.js';

describe('reading PromQL', () => {
  it('finds metrics, matchers and grouping labels', () => {
    expect(
      readPromql(
        'histogram_quantile(0.9, sum by (le, model) (rate(a_bucket{model=~"$m", x!="y"}[5m]))) > 2 and on (model) b:c{} offset 1h',
      ),
    ).toEqual({
      selectors: [
        {
          metric: 'a_bucket',
          matchers: [
            { label: 'model', op: '=~', value: '$m' },
            { label: 'x', op: '!=', value: 'y' },
          ],
        },
        { metric: 'b:c', matchers: [] },
      ],
      grouping: ['le', 'model'],
    });
  });

  it.each([
    'time() - x > 14.4 * 0.005',
    'sum(x) by (a, b) / ignoring (c) group_left (d) -y',
    'max_over_time(rate(x[1m])[10m:1m])',
    'topk(5, x) or vector(0)',
    'x == bool 1',
  ])('takes %s', (expression) => {
    expect(() => readPromql(expression)).not.toThrow();
  });

  it.each([
    ['sum by (a (x)', /expected \), got "\("/],
    ['rate(x[5m)', /expected \], got "\)"/],
    ['rat(x[5m])', /expected a function, got "rat"/],
    ['x{a=b}', /expected a string, got "b"/],
    ['x > ', /expected a value, got ""/],
    ['x y', /expected the end, got "y"/],
    ['rate(x[5])', /expected a duration/],
    ['x # y', /cannot read/],
  ])('refuses %s', (expression, message) => {
    expect(() => readPromql(expression)).toThrow(message);
  });
});
