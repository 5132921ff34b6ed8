import { describe, expect, it } from 'vitest';
import { endsWithAgent } from './container.js';

describe('engines end with the agent', () => {
  it.each([
    ['as process 1', { pid: 1, ppid: 0 }, 'node', true],
    ['as the one child of an init of containers', { pid: 7, ppid: 1 }, 'tini', true],
    ['below docker --init', { pid: 7, ppid: 1 }, 'docker-init', true],
    ['not as a service of systemd', { pid: 7, ppid: 1 }, 'systemd', false],
    ['not when somebody else is between', { pid: 9, ppid: 7 }, 'tini', false],
  ])('%s', (_what, own, init, ends) => {
    expect(endsWithAgent({ name: () => init }, own)).toBe(ends);
  });
});
