import { describe, expect, it } from 'vitest';
import type { GpuHealth } from '../../domain/cluster.js';
import type { GpuObservation, GpuSigns, XidEvent } from './driver.js';
import { assess, type GpuMemory } from './health-policy.js';
import { xidClass } from './xid-classes.js';

const gpu = (uuid: string, signs: GpuSigns = {}, busId = '00000000:1A:00.0'): GpuObservation => ({
  uuid,
  type: 'H100',
  vendor: 'nvidia',
  busId,
  linkedTo: [],
  signs,
});
const xid = (number: number, text = '', busId = '0000:1a:00', ageMs = 0): XidEvent => ({
  busId,
  xid: number,
  text,
  ageMs,
});
const DAY_MS = 24 * 3_600_000;
const old = (number: number, text = ''): XidEvent => xid(number, text, '0000:1a:00', DAY_MS);

/** A node whose probes a test gives one by one, a minute apart unless said otherwise. */
class Node {
  memory = new Map<string, GpuMemory>();
  atMs = 0;
  bootId = 'boot-1';

  probe(gpus: readonly GpuObservation[], xids: readonly XidEvent[] = [], stepMs = 60_000): this {
    this.atMs += stepMs;
    this.memory = assess(
      this.memory,
      { gpus, processes: [], xids, notes: [] },
      { monotonicMs: this.atMs, wallMs: 1_000_000 + this.atMs, bootId: this.bootId },
    );
    return this;
  }
  health(uuid = 'A'): GpuHealth | undefined {
    return this.memory.get(uuid)?.health;
  }
  /** Clean probes for as long. */
  clean(minutes: number, gpus = [gpu('A', { recoveryAction: 'None' })]): this {
    for (let minute = 0; minute < minutes; minute++) this.probe(gpus);
    return this;
  }
}

describe('the health policy', () => {
  it('knows a healthy device', () => {
    expect(new Node().probe([gpu('A')]).health()).toEqual({ state: 'healthy' });
  });

  it('keeps a device that is not reported any more, and the others usable', () => {
    const node = new Node().probe([gpu('A'), gpu('B')]).probe([gpu('B')]);
    expect(node.health('A')).toEqual({
      state: 'excluded',
      reason: 'not_reported',
      evidence: 'A was on this node and is not reported any more',
      sinceWallMs: 1_120_000,
      clearedBy: 'the device being reported again',
    });
    expect(node.health('B')).toEqual({ state: 'healthy' });
    node.probe([gpu('B')]);
    expect(node.health('A')?.sinceWallMs).toBe(1_120_000);
  });

  it('takes a returned device back only after it stayed', () => {
    const node = new Node()
      .probe([gpu('A')])
      .probe([])
      .probe([gpu('A')], [], 5_000);
    expect(node.health()?.state).toBe('excluded');
    expect(node.probe([gpu('A')], [], 60_000).health()?.state).toBe('healthy');
  });

  it('sees that another device came in its place', () => {
    const node = new Node().probe([gpu('A')]).probe([gpu('C')]);
    expect(node.health('A')?.reason).toBe('not_reported');
    expect(node.health('C')?.state).toBe('healthy');
  });

  it('forgets a device that was taken out a week ago', () => {
    const node = new Node().probe([gpu('A')]).probe([]);
    node.probe([], [], 8 * 24 * 3_600_000);
    expect(node.memory.has('A')).toBe(false);
  });

  it.each<[GpuSigns, GpuHealth['state'], string]>([
    [{ lost: 'GPU is lost' }, 'excluded', 'lost'],
    [{ recoveryAction: 'Reset' }, 'excluded', 'recovery_reset'],
    [{ recoveryAction: 'Drain and Reset' }, 'excluded', 'recovery_reset'],
    [{ recoveryAction: 'Node Reboot' }, 'excluded', 'recovery_reboot'],
    [{ recoveryAction: 'Drain P2P' }, 'suspect', 'recovery_drain_p2p'],
    [{ recoveryAction: 'Something new' }, 'suspect', 'recovery_unknown'],
    [{ remapFailure: true }, 'excluded', 'remap_failure'],
    [{ sramThresholdExceeded: true }, 'excluded', 'sram_threshold'],
    [{ unrepairableMemory: true }, 'excluded', 'unrepairable_memory'],
    [{ inactiveLinks: 2 }, 'suspect', 'links_inactive'],
  ])('takes %o as %s', (signs, state, reason) => {
    const node = new Node().probe([gpu('A', signs)]);
    expect(node.health()).toMatchObject({ state, reason });
    // Gone for a moment is not gone.
    expect(node.probe([gpu('A')], [], 5_000).health()?.state).toBe(state);
    expect(node.clean(6).health()?.state).toBe('healthy');
  });

  it('does not exclude for a pending repair', () => {
    expect(new Node().probe([gpu('A', { remapPending: true })]).health()?.state).toBe('healthy');
  });

  it('comes back only after as long as its findings ask for', () => {
    const of = (signs: GpuSigns, xids: readonly XidEvent[] = []): Node =>
      new Node().probe([gpu('A', signs)], xids);
    const states = (node: Node, minutes: number): (string | undefined)[] =>
      Array.from({ length: minutes }, () => node.clean(1).health()?.state);
    const excludedFor = (minutes: number): string[] => [
      ...Array<string>(minutes).fill('excluded'),
      'healthy',
    ];
    expect(states(of({ lost: 'GPU is lost' }), 5)).toEqual(excludedFor(4));
    expect(states(of({}, [xid(48)]), 5)).toEqual(excludedFor(4));
    expect(states(of({ inactiveLinks: 1 }), 2)).toEqual(['suspect', 'healthy']);
    expect(states(of({}, [xid(109)]), 2)).toEqual(['suspect', 'healthy']);
  });

  it('needs heat in three probes in a row', () => {
    const hot = [gpu('A', { thermalSlowdown: true })];
    const node = new Node()
      .probe(hot)
      .probe(hot)
      .probe([gpu('A')])
      .probe(hot)
      .probe(hot);
    expect(node.health()?.state).toBe('healthy');
    expect(node.probe(hot).health()).toMatchObject({ state: 'suspect', reason: 'thermal_slowdown' });
  });

  it('takes growth of uncorrectable errors as news, not their number', () => {
    const node = new Node().probe([gpu('A', { eccUncorrected: 7 })]);
    expect(node.health()?.state).toBe('healthy');
    expect(node.probe([gpu('A', { eccUncorrected: 8 })]).health()).toMatchObject({
      reason: 'ecc_uncorrected',
      evidence: 'uncorrectable memory errors went from 7 to 8',
    });
    expect(
      node
        .probe([gpu('A', { eccUncorrected: 0 })])
        .clean(2)
        .health()?.state,
    ).toBe('healthy');
  });

  it.each([11, 13, 25, 31, 32, 43, 45, 68, 94, 137])(
    'ignores application fault %i, but not many of them',
    (number) => {
      const node = new Node().probe([gpu('A')], [xid(number)]);
      expect(node.health()?.state).toBe('healthy');
      for (let count = 0; count < 4; count++) node.probe([gpu('A')], [xid(number)], 10_000);
      expect(node.health()).toMatchObject({ state: 'suspect', reason: 'xid_repeated' });
      expect(node.clean(15).health()?.state).toBe('healthy');
    },
  );

  it.each([63, 92, 156])('holds Xid %i, which informs, against nobody, however often', (number) => {
    const node = new Node();
    for (let count = 0; count < 20; count++) node.probe([gpu('A')], [xid(number)], 1_000);
    expect(node.health()?.state).toBe('healthy');
  });

  it.each([46, 48, 62, 95, 110, 119, 120, 136, 140, 143, 155, 158])(
    'excludes for Xid %i until a reset is known and stayed clean',
    (number) => {
      const node = new Node().probe([gpu('A')], [xid(number, 'DBE')]);
      expect(node.health()).toMatchObject({
        state: 'excluded',
        reason: `xid_${number}`,
        evidence: `Xid ${number}: DBE`,
      });
      // An old driver does not tell whether a reset took place: only a reboot is proof.
      expect(node.clean(60, [gpu('A')]).health()?.state).toBe('excluded');
      expect(node.clean(1).health()?.state).toBe('healthy');
    },
  );

  it.each([79, 64, 157])('excludes for Xid %i until a reboot', (number) => {
    const node = new Node().probe([gpu('A')], [xid(number)]).clean(600);
    expect(node.health()?.state).toBe('excluded');
    node.bootId = 'boot-2';
    expect(node.probe([gpu('A')]).health()?.state).toBe('healthy');
  });

  it('obeys the word of the driver in Xid 154', () => {
    const text = 'GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)';
    expect(new Node().probe([gpu('A')], [xid(154, text)]).health()).toMatchObject({
      reason: 'recovery_reboot',
      state: 'excluded',
    });
    const none = 'GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)';
    expect(new Node().probe([gpu('A')], [xid(154, none)]).health()?.state).toBe('healthy');
  });

  // A new agent reads the kernel's log from its beginning: what was long over must not take devices out again.
  it('holds nothing of yesterday against a device that was mended since, or only had bad guests', () => {
    const said = { recoveryAction: 'None' };
    for (const number of [48, 74, 109, 13])
      expect(
        new Node()
          .probe(
            [gpu('A', said)],
            Array.from({ length: 9 }, () => old(number)),
          )
          .health()?.state,
      ).toBe('healthy');
    const asked = 'GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)';
    expect(new Node().probe([gpu('A', said)], [old(154, asked)]).health()?.state).toBe('healthy');
  });

  it('holds against it what only a reboot mends, and what nobody says was mended, with the day it happened', () => {
    const node = new Node().probe([gpu('A', { recoveryAction: 'None' })], [old(79)]);
    expect(node.health()).toMatchObject({ reason: 'xid_79', sinceWallMs: 1_060_000 - DAY_MS });
    expect(new Node().probe([gpu('A')], [old(48)]).health()).toMatchObject({ reason: 'xid_48' });
  });

  it('takes the boot of the last evidence for the one that must pass', () => {
    const node = new Node().probe([gpu('A')], [xid(79)]);
    node.bootId = 'boot-2';
    node.probe([gpu('A')], [xid(79)]).clean(60);
    expect(node.health()?.state).toBe('excluded');
    node.bootId = 'boot-3';
    expect(node.probe([gpu('A')]).health()?.state).toBe('healthy');
  });

  it.each([74, 144, 145, 146, 147, 148, 149, 150])('keeps new work off for a bad link, Xid %i', (number) => {
    const node = new Node().probe([gpu('A')], [xid(number)]);
    expect(node.health()).toMatchObject({ state: 'suspect', reason: `xid_${number}` });
    expect(node.clean(3).health()?.state).toBe('healthy');
  });

  it('blames a link on the device alone, and a number it does not know for a while', () => {
    expect(new Node().probe([gpu('A')], [xid(74)]).health()).toMatchObject({
      state: 'suspect',
      reason: 'xid_74',
    });
    const node = new Node().probe([gpu('A')], [xid(999)]);
    expect(node.health()).toMatchObject({ state: 'suspect', reason: 'xid_999' });
    expect(node.clean(3).health()?.state).toBe('healthy');
  });

  it('holds an error against the device it names, no other', () => {
    const node = new Node().probe([gpu('A'), gpu('B', {}, '00000000:2B:00.0')], [xid(79, '', '0000:2b:00')]);
    expect(node.health('A')?.state).toBe('healthy');
    expect(node.health('B')?.reason).toBe('xid_79');
  });

  it('shows the worst of several findings and names the rest', () => {
    const node = new Node().probe([gpu('A', { inactiveLinks: 1, remapFailure: true })]);
    expect(node.health()).toMatchObject({ reason: 'remap_failure' });
    expect(node.health()?.evidence).toMatch(/also links_inactive/);
  });

  it('keeps the name of a device that cannot tell it any more', () => {
    const lost: GpuObservation = { ...gpu('A', { lost: 'x' }), type: 'unknown' };
    expect(
      new Node()
        .probe([gpu('A')])
        .probe([lost])
        .memory.get('A')?.last.type,
    ).toBe('H100');
  });

  it('does not let a flapping device swing', () => {
    const node = new Node();
    for (let round = 0; round < 50; round++)
      node.probe([gpu('A', { recoveryAction: round % 2 === 0 ? 'Reset' : 'None' })]);
    expect(node.health()?.state).toBe('excluded');
  });

  it('knows the class of each number', () => {
    expect([31, 63, 48, 79, 144, 154, 109].map(xidClass)).toEqual([
      'application',
      'informational',
      'reset',
      'reboot',
      'link',
      'driverSays',
      'doubtful',
    ]);
  });
});
