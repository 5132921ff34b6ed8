import { describe, expect, it } from 'vitest';
import { LinkStory } from './link-story.js';
import type { LinkChange } from './ports.js';

const closed: LinkChange = { kind: 'closed', from: '10.0.0.1:5', reason: 'silent for 15 s' };
const back: LinkChange = {
  kind: 'reconnected',
  from: '10.0.0.1:6',
  sameProcess: false,
  sameBoot: true,
  awayMs: 12_300,
  engines: ['m-a.0'],
};

describe('the story of a link', () => {
  it.each<[LinkChange, string, string]>([
    [closed, 'AgentDisconnected', 'the stream from 10.0.0.1:5 ended: silent for 15 s; its engines go on'],
    [back, 'AgentReconnected', 'from 10.0.0.1:6 after 12 s: a new agent process; taken as they run: m-a.0'],
    [
      { ...back, sameProcess: true, engines: [] },
      'AgentReconnected',
      'from 10.0.0.1:6 after 12 s: the same agent; no engine of ours runs there',
    ],
    [
      { kind: 'refused', from: '10.0.0.9:1', code: 'nodeIdTaken', message: 'held by 10.0.0.1' },
      'AgentRefused',
      'an agent at 10.0.0.9:1 was not taken: held by 10.0.0.1',
    ],
  ])('says what happened: %#', (change, type, message) => {
    expect(new LinkStory().tell('n1', change, 0)).toMatchObject({
      type,
      subject: { kind: 'node', id: 'n1' },
      reason: { message },
      actor: 'agent',
    });
  });

  it('of a flapping node is bounded, and says later how much was left out', () => {
    const story = new LinkStory();
    const told = Array.from({ length: 100 }, (_, n) => story.tell('n1', closed, n * 2_000));
    expect(told.filter((event) => event !== undefined)).toHaveLength(8);
    expect(story.tell('n2', closed, 200_000)).toBeDefined();
    expect(story.tell('n1', closed, 1_000_000)?.reason).toMatchObject({ numbers: { untold: 92 } });
    expect(story.tell('n1', closed, 1_000_001)?.reason.numbers).toBeUndefined();
  });
});
