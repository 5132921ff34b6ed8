// What an API key with limits of every kind costs a request: found, judged, granted, headers written, settled. CPU µs.
// Run `npm run build` first.
import { KeyAuthoriser } from '../dist/access/key-authoriser.js';
import { KeyRing } from '../dist/access/key-ring.js';
import { secretHash } from '../dist/access/secrets.js';
import { systemClock } from '../dist/shared/clock.js';

const BAR_US = 3;
const KEYS = 1_000;
const ROUNDS = 5;
const REQUESTS = 200_000;

const secretOf = (i) => `sk-llmgw-${String(i).padStart(43, 'x')}`;
const limits = { requestsPerMinute: 1e9, tokensPerMinute: 1e9, maxConcurrent: 1e6 };
const records = Array.from({ length: KEYS }, (_, i) => ({
  ...{ id: `key-${i}`, name: 'bench', hash: secretHash(secretOf(i)), models: ['other', 'm*'] },
  ...{ ...limits, createdAt: new Date(0).toISOString() },
}));
const ring = new KeyRing({ list: () => records.map((value) => ({ value })) }, systemClock);
const authoriser = new KeyAuthoriser(ring, systemClock, { auth: { apiKeys: { required: true } } });
// As they come from sockets: text that nobody has seen before.
const sent = records.map((_, i) => Buffer.from(secretOf(i)));
const model = { name: 'm1', aliases: [] };

function request(i) {
  const principal = authoriser.authenticate(sent[i % KEYS].toString('latin1'));
  if (!principal.mayUse(model)) throw new Error('not allowed');
  const grant = authoriser.grant(principal, 300.5);
  if (grant.headers.length !== 12) throw new Error('headers are missing');
  grant.end({ tokens: 280, counts: true });
}

const roundsUs = Array.from({ length: ROUNDS }, () => {
  const before = process.cpuUsage();
  for (let i = 0; i < REQUESTS; i++) request(i);
  const { user, system } = process.cpuUsage(before);
  return (user + system) / REQUESTS;
});
const us = roundsUs.toSorted((a, b) => a - b)[Math.floor(ROUNDS / 2)];
console.log(
  `an API key costs a request ${us.toFixed(2)} µs of CPU, bar ${BAR_US} µs: ${us <= BAR_US ? 'met' : 'NOT MET'}`,
);
process.exitCode = us <= BAR_US ? 0 : 1;
