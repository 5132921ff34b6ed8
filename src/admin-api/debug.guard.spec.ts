import { expect, it } from 'vitest';
import { mayDebug } from './debug.guard.js';

// With `insecure: true` and no tokens the whole network has the role of an administrator.
it.each([
  ['local', '127.0.0.1', true],
  ['local', '::1', true],
  ['local', '::ffff:127.0.0.1', true],
  ['local', '10.0.0.7', false],
  ['local', '::ffff:172.18.0.1', false],
  ['alice', '10.0.0.7', true],
])('%s from %s may look into the process: %s', (name, from, may) => {
  expect(mayDebug({ name, from })).toBe(may);
});
