import { describe, expect, it } from 'vitest';
import { takeClientSocket } from './handed-over-socket.js';

const PID = 4711;
const env = (count: string, names?: string, pid: number = PID): NodeJS.ProcessEnv => ({
  LISTEN_PID: String(pid),
  LISTEN_FDS: count,
  ...(names === undefined ? {} : { LISTEN_FDNAMES: names }),
});

describe('a socket handed over by a supervisor', () => {
  it.each([
    ['nothing in the environment', {}, undefined],
    ['one, named after its unit by default', env('1', 'llmgw.socket'), 3],
    ['one without a name', env('1'), 3],
    ['several, one of them for clients', env('3', 'metrics:listen:other'), 4],
    ['none', env('0'), undefined],
    // systemd's variables reach everything a shell wrapper starts; only the named process may take them.
    ['meant for another process', env('1', 'listen', PID + 1), undefined],
    ['a count without a process', { LISTEN_FDS: '1' }, undefined],
  ])('%s', (_what, given, fd) => {
    expect(takeClientSocket(given, PID)).toBe(fd);
  });

  it.each([
    [env('2', 'a:b'), /of 2 sockets none is named "listen"/],
    [env('2'), /name the one for clients "listen"/],
    [env('many'), /LISTEN_FDS is "many"/],
    // The third name has no socket.
    [env('2', 'a:b:listen'), /none is named/],
  ])('is refused rather than guessed: %o', (given, message) => {
    expect(() => takeClientSocket(given, PID)).toThrow(message);
  });

  it('is not offered to children', () => {
    const given = { ...env('1', 'listen'), PATH: '/bin' };
    takeClientSocket(given, PID);
    expect(given).toEqual({ PATH: '/bin' });
  });
});
