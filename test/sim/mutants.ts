/**
 * Planted bugs: each is one changed place in the real sources, switched on by name, and each must be found by the simulator. They
 * prove that it sees. A text that is no longer in its file fails loudly, so the list cannot rot.
 */
export interface Mutant {
  readonly name: string;
  readonly file: string;
  readonly find: string;
  readonly replace: string;
}

const R = 'src/domain/reconcile/';
const P = 'src/domain/placement/';

export const MUTANTS: readonly Mutant[] = [
  {
    name: 'missing counts as stopped while a command is under way',
    file: `${R}shard-state.ts`,
    find: 'return node.unsettled.includes(shardKey(shard.shardId, generation))',
    replace: 'return false',
  },
  {
    name: 'stopping counts as stopped',
    file: `${R}shard-state.ts`,
    find: "return status.report.phase === 'exited';",
    replace: "return status.report.phase === 'exited' || status.report.phase === 'stopping';",
  },
  {
    name: 'silent counts as stopped',
    file: `${R}shard-state.ts`,
    find: "    case 'unsettled':\n    case 'silent':\n      return false;\n  }\n}\n\n/** Whether a rank",
    replace:
      "    case 'unsettled':\n      return false;\n    case 'silent':\n      return true;\n  }\n}\n\n/** Whether a rank",
  },
  {
    name: 'a draining replica holds nothing',
    file: `${R}book-all.ts`,
    find: 'if (ending && isStopped(status)) continue;',
    replace: "if (record.intent !== 'run' || (ending && isStopped(status))) continue;",
  },
  {
    name: 'reported strays hold nothing',
    file: `${R}book-all.ts`,
    find: "phase === 'exited' || held.has",
    replace: "phase !== 'unknown' || held.has",
  },
  {
    name: 'no settling after a start',
    file: `${R}pass.ts`,
    find: 'return nodes.some((node) => !isTalking(node) ||',
    replace: 'return nodes.length > 99 && nodes.some((node) => !isTalking(node) ||',
  },
  {
    name: 'a server whose state was set back does not wait for all agents',
    file: `${R}state-loss.ts`,
    find: 'memory.stateLost ?? snapshot.stateLost ??',
    replace: 'memory.stateLost ??',
  },
  {
    name: 'a copy that came to stay is still taken for a replacement',
    file: `${R}scale.ts`,
    find: "if (other?.intent !== 'run') continue;",
    replace: "if (other?.intent !== 'run' || present.length > 0) continue;",
  },
  {
    name: 'of equal copies the oldest goes',
    file: `${R}scale.ts`,
    find: 'return b.createdWallMs - a.createdWallMs ||',
    replace: 'return a.createdWallMs - b.createdWallMs ||',
  },
  {
    name: 'requests do not matter for who goes',
    file: `${R}scale.ts`,
    find: 'return a.rank - b.rank || a.inflight - b.inflight;',
    replace: 'return a.rank - b.rank;',
  },
  {
    name: 'a stop that somebody asked for is a crash',
    file: `${R}progress.ts`,
    find: "status.report.verdict === 'stopped',",
    replace: "status.report.verdict === ('' as never),",
  },
  {
    name: 'no mass-loss brake',
    file: `${R}liveness.ts`,
    find: 'return { braking: !believed,',
    replace: 'return { braking: false && !believed,',
  },
  {
    name: 'our own sleep is held against the nodes',
    file: `${R}liveness.ts`,
    find: 'const slept = nowMs -',
    replace: 'const slept = nowMs < 0 && nowMs -',
  },
  {
    name: 'published before it is Ready',
    file: `${R}publish.ts`,
    find: 'if (seen.ready) return true;',
    replace: 'if (!seen.silent) return true;',
  },
  {
    name: 'published while it drains',
    file: `${R}publish.ts`,
    find: "record.intent !== 'run' ||",
    replace: "record.intent === 'stop' ||",
  },
  {
    name: 'rank 0 alone is Ready',
    file: `${R}replica-state.ts`,
    find: "return shard.rank === 0 ? status.report.phase === 'ready' : isAlivePhase(status.report.phase);",
    replace: "return shard.rank === 0 ? status.report.phase === 'ready' : isAlivePhase('ready');",
  },
  {
    name: 'a silent replica stays published without proof of life',
    file: `${R}publish.ts`,
    find: 'return provesLife(evidence, pass.policy, pass.nowMs);',
    replace: 'return provesLife(evidence, pass.policy, pass.nowMs) || true;',
  },
  {
    name: 'a silent replica is dropped although it answers',
    file: `${R}publish.ts`,
    find: 'return provesLife(evidence, pass.policy, pass.nowMs);',
    replace: 'return !provesLife(evidence, pass.policy, pass.nowMs) && false;',
  },
  {
    name: 'the old copy goes before the new one is Ready',
    file: `${R}moves.ts`,
    find: 'if (pass.observed(replacement).ready && steady && !goes) {',
    replace: 'if (steadyMs >= 0) {',
  },
  {
    name: 'the new copy need not be steady',
    file: `${R}moves.ts`,
    find: 'steadyMs >= pass.policy.steadyMs',
    replace: 'steadyMs >= 0',
  },
  {
    name: 'a drain does not wait for streams',
    file: `${R}progress.ts`,
    find: 'if (inflight === 0) return stopNow',
    replace: 'if (inflight >= 0) return stopNow',
  },
  {
    name: 'what served is stopped instead of drained',
    file: `${R}scale.ts`,
    find: "const intent = served ? 'drain' : 'stop';",
    replace: "const intent = served ? 'stop' : 'stop';",
  },
  {
    name: 'the stream grace is forgotten',
    file: `${R}progress.ts`,
    find: 'if (waitedMs >= graceMs) {',
    replace: 'if (waitedMs >= graceMs * 1e9) {',
  },
  {
    name: 'the delay does not grow',
    file: `${R}backoff.ts`,
    find: '? 0 : countedFailures(known);',
    replace: '? 0 : countedFailures(known) * 0;',
  },
  {
    name: 'the delay has no cap',
    file: `${R}backoff.ts`,
    find: 'Math.min(policy.maxBackoffMs, policy.baseBackoffMs * 2 ** Math.min(doublings, 30));',
    replace: 'policy.baseBackoffMs * 2 ** Math.min(doublings, 30);',
  },
  {
    name: 'failures are forgiven at once',
    file: `${R}backoff.ts`,
    find: 'return Math.max(policy.healthyResetMs,',
    replace: 'return Math.min(1_000, policy.healthyResetMs,',
  },
  {
    name: 'a restarted server forgets the wait',
    file: `${R}progress.ts`,
    find: 'pass.remember(record, { retryAtMs: pass.nowMs + leftMs });',
    replace: 'pass.remember(record, { retryAtMs: pass.nowMs + leftMs * 0 });',
  },
  {
    name: 'permanent causes are tried for ever',
    file: `${R}backoff.ts`,
    find: 'const permanent = PERMANENT_VERDICTS.has(failure.cause);',
    replace: 'const permanent = PERMANENT_VERDICTS.size === 0;',
  },
  {
    name: 'the same node again',
    file: `${P}scores.ts`,
    find: 'fresh: freshness(candidate),',
    replace: 'fresh: 1 - freshness(candidate) * 0,',
  },
  {
    name: 'a cordon is ignored',
    file: `${P}filters.ts`,
    find: "blocks: ({ node }) => node.intent.gpuUuid === undefined && node.intent.target !== 'schedulable',",
    replace: 'blocks: ({ node }) => node.id === "",',
  },
  {
    name: 'the health of devices is ignored',
    file: `${P}filters.ts`,
    find: "blocks: ({ gpu }) => gpu.health.state !== 'healthy',",
    replace: "blocks: ({ gpu }) => gpu.health.state === ('' as never),",
  },
  {
    name: 'strangers on a device are ignored',
    file: `${P}filters.ts`,
    find: 'blocks: ({ gpu, neededBytes }) => neededBytes === undefined && gpu.foreign.length > 0,',
    replace: 'blocks: ({ gpu }) => gpu.foreign.length > 99,',
  },
  {
    name: 'a device held whole is shared',
    file: `${P}filters.ts`,
    find: 'blocks: ({ holders }) => holders.some((holder) => holder.memoryBytes === undefined),',
    replace: 'blocks: ({ holders }) => holders.length > 99,',
  },
  {
    name: 'booked memory is not counted',
    file: `${P}bookings.ts`,
    find: 'booked += holder.memoryBytes;',
    replace: 'booked += holder.memoryBytes * 0;',
  },
  {
    name: 'ports of our own shards are not counted',
    file: `${P}ports.ts`,
    find: 'return !bookings.ports.has(port) && !node.portsTaken.includes(port);',
    replace: 'return bookings.cpuShards >= 0 && !node.portsTaken.includes(port);',
  },
  {
    name: 'ports taken by others are not counted',
    file: `${P}ports.ts`,
    find: 'return !bookings.ports.has(port) && !node.portsTaken.includes(port);',
    replace: 'return !bookings.ports.has(port) && node.id !== "";',
  },
  {
    name: 'anti-affinity is ignored',
    file: `${P}filters.ts`,
    find: 'model.placement.antiAffinity && (bookings',
    replace: "model.placement.antiAffinity && model.name === '' && (bookings",
  },
  {
    name: 'a gang starts one rank at a time',
    file: `${R}commands.ts`,
    find: 'for (const { shard } of missing) startShard',
    replace: 'for (const { shard } of missing.slice(0, 1)) startShard',
  },
  {
    name: 'the ranks that survived run on',
    file: `${R}progress.ts`,
    find: 'stopShards(pass, now, because(',
    replace: 'if (now.shards.length > 99) stopShards(pass, now, because(',
  },
  {
    name: 'a gang is stopped one rank at a time',
    file: `${R}commands.ts`,
    find: 'for (const { shard, status } of seen.shards) {\n    const running',
    replace: 'for (const { shard, status } of seen.shards.slice(0, 1)) {\n    const running',
  },
  {
    name: 'a gang serves without all of its ranks',
    file: `${R}replica-state.ts`,
    find: 'ready &&= isUp(shard, status);',
    replace: 'ready &&= shard.rank > 0 || isUp(shard, status);',
  },
  {
    name: 'a gang leaves only with the node of its first rank',
    file: `${R}leave.ts`,
    find: 'for (const shard of record.shards) {',
    replace: 'for (const shard of record.shards.slice(0, 1)) {',
  },
  {
    name: 'failures are forgotten with the room that was kept',
    file: `${R}yields.ts`,
    find: 'if (pass.isMove(record) && record.shards.length === 0) pass.remove',
    replace: 'if (record.replaces !== undefined && record.shards.length === 0) pass.remove',
  },
  {
    name: 'one makes room while another of its model is on its way out',
    file: `${R}moves.ts`,
    find: "one.intent !== 'run' && !pass.observed(one).silent);",
    replace: "one.intent === ('' as never) && !pass.observed(one).silent);",
  },
  {
    name: 'a generation is given out twice',
    file: `${R}places.ts`,
    find: 'return Math.max(record.generation, ...reported) + 1;',
    replace: 'return Math.max(1, record.generation, ...reported.slice(0, 0));',
  },
  {
    name: 'strangers are left running',
    file: `${R}adopt.ts`,
    find: 'if (leftMs <= 0) {',
    replace: 'if (leftMs <= -1e9) {',
  },
  {
    name: 'nothing is taken over',
    file: `${R}adopt.ts`,
    find: 'return whole ? gang : undefined;',
    replace: 'return whole ? undefined : undefined;',
  },
  {
    name: 'strangers are stopped at once',
    file: `${R}adopt.ts`,
    find: 'const leftMs = sinceMs + pass.policy.orphanGraceMs - pass.nowMs;',
    replace: 'const leftMs = sinceMs - pass.nowMs;',
  },
  {
    name: 'the wrong victim',
    file: `${R}scale.ts`,
    find: 'a.rank - b.rank ||',
    replace: 'b.rank - a.rank ||',
  },
  {
    name: 'a gap needs no leave',
    file: `${R}moves.ts`,
    find: 'if (allowed) {\n    leave(\n',
    replace: 'if (allowed || true) {\n    leave(\n',
  },
  {
    name: 'deadlines of drains are ignored',
    file: `${R}drain.ts`,
    find: 'drainingNodes(pass, record).some((node) => drainLeftMs(pass, node) <= 0);',
    replace: 'drainingNodes(pass, record).some((node) => drainLeftMs(pass, node) <= -1e15);',
  },
  {
    name: 'all replicas move at once',
    file: `${R}moves.ts`,
    find: 'if (moving > 0) return because',
    replace: 'if (moving > 99) return because',
  },
  {
    name: 'loads are not limited',
    file: `${R}places.ts`,
    find: 'if (loading < limit) return undefined;',
    replace: 'if (loading < limit + 99) return undefined;',
  },
  {
    name: 'commands are repeated in every pass',
    file: `${R}commands.ts`,
    find: 'if (before !== undefined && !onOldStream && pass.nowMs - before.sentMs < resendMs) {',
    replace: 'if (before !== undefined && !onOldStream && pass.nowMs - before.sentMs < resendMs * 0) {',
  },
  {
    name: 'the digest does not see arguments',
    file: 'src/domain/catalog/spec-digest.ts',
    find: 'args: profile.args,',
    replace: '',
  },
  {
    name: 'proof of death is ignored',
    file: `${R}replica-state.ts`,
    find: 'return (evidence?.firstTokenTimeouts ?? 0) >= policy.hungAfterTimeouts;',
    replace: 'return (evidence?.firstTokenTimeouts ?? 0) >= policy.hungAfterTimeouts * 1e9;',
  },
  {
    name: 'an unhealthy engine is never restarted',
    file: `${R}progress.ts`,
    find: 'if (forMs < pass.policy.unhealthyRestartMs) return undefined;',
    replace: 'if (forMs < pass.policy.unhealthyRestartMs * 1e9) return undefined;',
  },
  {
    name: 'a freed place is forgotten when its node falls silent',
    file: `${R}progress.ts`,
    find: 'if (left.length === record.shards.length) return;',
    replace: 'if (left.length <= record.shards.length) return;',
  },
  {
    name: 'copies of a model are piled on one device',
    file: `${P}scores.ts`,
    find: '  apart: 50,',
    replace: '  apart: 0,',
  },
  {
    name: 'a copy that is back is let go before its successor serves',
    file: `${R}reconcile.ts`,
    find: '  reviveReplicas(pass);\n',
    replace: '  if (pass.nowMs < 0) reviveReplicas(pass);\n',
  },
  {
    name: 'a node counts as drained before its stops are confirmed',
    file: `${R}drain.ts`,
    find: 'return replicas.length === 0 && strays.length === 0;',
    replace: "return replicas.every(({ intent }) => intent === 'stop') && strays.length === 0;",
  },
  {
    name: 'a drained node may hold engines without a record',
    file: `${R}drain.ts`,
    find: "phase !== 'exited' && concerns(gpuUuids) &&",
    replace: "phase === ('' as never) && concerns(gpuUuids) &&",
  },
  {
    name: 'a drain waits without a word',
    file: `${R}note-drains.ts`,
    find: 'for (const record of remains.replicas) sayWhyStillThere',
    replace: 'for (const record of remains.replicas.slice(0, 0)) sayWhyStillThere',
  },
  {
    name: 'an uncordon calls nothing back that is on its way out',
    file: `${R}scale.ts`,
    find: 'seen.failure === undefined && steady && leaveReason(pass, record) === undefined;',
    replace: "seen.failure === undefined && steady && record.intentReason.code === 'node_lost';",
  },
  {
    name: 'a longer stream grace of an operator is cut short',
    file: `${R}progress.ts`,
    find: 'return graces.length === 0 ? pass.policy.streamGraceMs : Math.min(...graces);',
    replace: 'return Math.min(pass.policy.streamGraceMs, ...graces);',
  },
  {
    name: 'streams outlast the deadline that an operator gave',
    file: `${R}drain.ts`,
    find: '(node) => node.intent.deadlineMs !== undefined && drainLeftMs(pass, node) <= 0,',
    replace: '(node) => node.intent.deadlineMs !== undefined && drainLeftMs(pass, node) <= -1e15,',
  },
  {
    name: 'an equal one is displaced',
    file: `${P}yielding.ts`,
    find: 'if (victim.priority >= to.priority)',
    replace: 'if (victim.priority > to.priority)',
  },
  {
    name: 'nobody is asked for leave to displace',
    file: `${P}yielding.ts`,
    find: 'if (victim.placement.mayYield !== true) return',
    replace: "if (victim.placement.mayYield === ('' as never)) return",
  },
  {
    name: 'more make room than needed',
    file: `${P}yielding.ts`,
    find: 'for (let size = 1; size <= Math.min(present.length, most); size += 1) {',
    replace: 'for (let size = present.length; size <= present.length; size += 1) {',
  },
  {
    name: "the room that was made is anybody's",
    file: `${R}book-all.ts`,
    find: 'for (const record of reserving) bookRoom(bookings, record);',
    replace: '',
  },
  {
    name: 'room is made for one that always fails',
    file: `${R}yields.ts`,
    find: 'const FAILURES_MAX = 3;',
    replace: 'const FAILURES_MAX = 3e9;',
  },
];
