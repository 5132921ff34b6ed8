import { expect, it } from 'vitest';
import { didYouMean, nearest } from './nearest.js';

const KEYS = ['listen', 'adminListen', 'agentListen', 'stateDir', 'models'];

it.each([
  ['adminn_listen', 'adminListen'],
  ['admin-listen', 'adminListen'],
  ['ADMINLISTEN', 'adminListen'],
  ['modles', 'models'],
  ['model', 'models'],
  ['lisetn', 'listen'],
  ['statedirr', 'stateDir'],
])('%s means %s', (word, wanted) => {
  expect(nearest(word, KEYS)).toBe(wanted);
});

it.each(['x', 'replicas', 'endpoint', ''])('%j is near nothing', (word) => {
  expect(didYouMean(word, KEYS)).toBe('');
});
