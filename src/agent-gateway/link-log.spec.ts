import { beforeEach, describe, expect, it } from 'vitest';
import { systemClock, type Clock } from '../shared/clock.js';
import { createLogger } from '../shared/logger.js';
import { LinkLog, SINGLY_MAX } from './link-log.js';

let lines: Record<string, unknown>[];
let endWindow: () => void;
let log: LinkLog;

function start(level: 'info' | 'debug'): void {
  lines = [];
  endWindow = () => undefined;
  const clock: Clock = {
    ...systemClock,
    setTimer: (_, fn) => {
      endWindow = fn;
      return { cancel: () => undefined };
    },
  };
  const logger = createLogger({ level, format: 'json' }, (line) =>
    lines.push(JSON.parse(line) as Record<string, unknown>),
  );
  log = new LinkLog(logger, clock);
}

const said = (message: string) => lines.filter(({ msg }) => msg === message);

beforeEach(() => start('info'));

describe('the log of agents that come and go', () => {
  it('tells of a few one by one, and adds nothing', () => {
    log.connected('n1', '10.0.0.1:5', '1.2');
    log.disconnected('n1', '10.0.0.1:5', 'connection closed');
    endWindow();
    expect(lines).toMatchObject([
      { level: 'info', msg: 'agent connected', node: 'n1', from: '10.0.0.1:5', build: '1.2' },
      { level: 'info', msg: 'agent disconnected', node: 'n1', reason: 'connection closed' },
    ]);
  });

  it('tells of the rest of a fleet in one line each for coming and going', () => {
    for (let index = 0; index < 100; index += 1) log.connected(`n${index}`, 'here', '1');
    for (let index = 0; index < 3; index += 1) log.disconnected(`n${index}`, 'here', 'gone');
    expect(said('agent connected')).toHaveLength(SINGLY_MAX);
    endWindow();
    expect(said('more agents connected')).toMatchObject([
      { count: 100 - SINGLY_MAX, unnamed: 100 - SINGLY_MAX - 16 },
    ]);
    expect(said('more agents disconnected')).toMatchObject([{ count: 3, nodes: ['n0', 'n1', 'n2'] }]);
    expect(lines).toHaveLength(SINGLY_MAX + 2);
  });

  it('begins anew with the next second', () => {
    for (let index = 0; index <= SINGLY_MAX; index += 1) log.connected(`n${index}`, 'here', '1');
    endWindow();
    log.connected('late', 'here', '1');
    expect(lines.at(-1)).toMatchObject({ msg: 'agent connected', node: 'late' });
    endWindow();
    expect(said('more agents connected')).toHaveLength(1);
  });

  it('tells of everybody at level debug', () => {
    start('debug');
    for (let index = 0; index < 100; index += 1) log.connected(`n${index}`, 'here', '1');
    expect(said('agent connected')).toHaveLength(100);
  });
});
