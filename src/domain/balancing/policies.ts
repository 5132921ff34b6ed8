import { Balancer } from './balancer.js';
import type { Ranking } from './balancer.js';
import type { PolicyName } from './candidate.js';
import { LeastLoad, PowerOfTwo } from './least-load.js';
import { PrefixAware } from './prefix-aware.js';
import { PrefixIndex } from './prefix-index.js';
import { RoundRobin } from './round-robin.js';
import { SessionAffinity } from './session-affinity.js';

/**
 * A balancer with its own state for one model and routing profile.
 * @param index what the endpoints' caches hold: one for the whole process, since its bytes are bounded as a whole
 */
export function createBalancer(policy: PolicyName, index = new PrefixIndex()): Balancer {
  return new Balancer(createRanking(policy, index));
}

function createRanking(policy: PolicyName, index: PrefixIndex): Ranking {
  switch (policy) {
    case 'roundRobin':
      return new RoundRobin();
    case 'leastLoad':
      return new LeastLoad();
    case 'powerOfTwo':
      return new PowerOfTwo();
    case 'sessionAffinity':
      return new SessionAffinity();
    case 'prefixAware':
      return new PrefixAware(index);
  }
}
