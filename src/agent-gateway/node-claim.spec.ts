import { describe, expect, it } from 'vitest';
import { judgeClaim, type Claim } from './node-claim.js';

const HOLDER = { instanceId: 'x', machineId: 'm', bootId: 'b', hostname: 'h', stateDirId: 'd1' };

const verdict = (claim: Partial<Claim['hello']>, holder: Partial<Claim['hello']> = {}): string =>
  judgeClaim(
    { hello: { ...HOLDER, ...holder }, peerHost: '10.0.0.1' },
    { hello: { ...HOLDER, instanceId: 'y', ...claim }, peerHost: '10.0.0.1' },
    new Set(),
  );

describe('an agent that wants the node id of one that is connected', () => {
  it.each<[string, string, Partial<Claim['hello']>, Partial<Claim['hello']>]>([
    ['on its state directory takes over: the lock proves the other gone', 'sameMachine', {}, {}],
    ['on another state directory does not', 'otherDirectory', { stateDirId: 'd2' }, {}],
    [
      'on another state directory after a boot takes over: the other cannot live',
      'sameMachine',
      { stateDirId: 'd2', bootId: 'b2' },
      {},
    ],
    [
      'on another state directory where boots cannot be told does not',
      'otherDirectory',
      { stateDirId: 'd2', bootId: undefined } as never,
      { bootId: undefined } as never,
    ],
    [
      'of a version that tells takes over from one that does not',
      'sameMachine',
      {},
      { stateDirId: undefined } as never,
    ],
    ['on another machine does not, whatever its directory', 'otherMachine', { machineId: 'm2' }, {}],
    ['dialling anew takes over', 'sameAgent', { instanceId: 'x', stateDirId: 'd2' }, {}],
  ])('%s', (_, expected, claim, holder) => {
    expect(verdict(claim, holder)).toBe(expected);
  });
});
