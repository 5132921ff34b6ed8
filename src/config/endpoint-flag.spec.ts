import { describe, expect, it } from 'vitest';
import { endpointFlagSource, parseEndpointFlag } from './endpoint-flag.js';

describe('--endpoint', () => {
  it.each([
    ['e1=http://h:1=m', 'e1', 'http://h:1', ['m']],
    [' e1 = http://h:1/ = m , n ', 'e1', 'http://h:1', ['m', 'n']],
    ['e1=http://h=org/name:tag@v=2', 'e1', 'http://h', ['org/name:tag@v=2']],
  ])('%j', (spec, id, url, models) => {
    const parsed = parseEndpointFlag(spec);
    expect(parsed.ok && parsed.value).toMatchObject({ id, url, models, pool: 'static', weight: 1 });
  });

  it.each(['', 'foo', 'a=http://h', '=http://h=m', 'a==m', 'a=http://h=', 'a=http://h=m,', 'a=http://h=,m'])(
    '%j is refused with the fixed text',
    (spec) => {
      expect(parseEndpointFlag(spec)).toEqual({ ok: false, problem: 'expected id=URL=model[,model]' });
    },
  );

  it.each([
    ['a=ftp://h=m', 'http:// or https://'],
    ['a=http://u:p@h=m', 'user name or password'],
    ['a=http://169.254.169.254=m', 'link-local'],
  ])('%j is refused: the fixed text, then why', (spec, why) => {
    const parsed = parseEndpointFlag(spec);
    expect(parsed.ok ? '' : parsed.problem).toMatch(/^expected id=URL=model\[,model\]: /);
    expect(parsed.ok ? '' : parsed.problem).toContain(why);
  });

  it('names itself without the password', () => {
    expect(endpointFlagSource('a=http://u:p@h=m')).toBe('--endpoint "a=http://***@h=m"');
  });
});
