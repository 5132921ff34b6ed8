/**
 * Shapes of the messages as the proto loader delivers and takes them. Nothing here is trusted: `to-domain.ts` checks.
 * 64-bit numbers arrive as decimal strings and may be sent as numbers; an enum arrives by name, or as a number when it
 * is newer than this program.
 */

export type Wire64 = string | number;
export type WireEnum = string | number;

export interface WireAgentMessage {
  readonly hello?: WireHello | null;
  readonly report?: WireReport | null;
  readonly result?: WireCommandResult | null;
  readonly log?: WireLogChunk | null;
  readonly pong?: { readonly nonce: Wire64 } | null;
  readonly probe?: WireHello | null;
  /** Name of the set field, added by the loader; undefined when the body is newer than this program. */
  readonly body?: string;
}

export interface WireServerMessage {
  readonly welcome?: WireWelcome | null;
  readonly refusal?: WireRefusal | null;
  readonly start?: WireStartShard | null;
  readonly stop?: WireStopShard | null;
  readonly fetchLogs?: WireFetchLogs | null;
  readonly ping?: { readonly nonce: Wire64 } | null;
  readonly ack?: { readonly sequence: Wire64 } | null;
  readonly drain?: WireDrainShard | null;
  readonly body?: string;
}

export interface WireHello {
  readonly protocolVersion: number;
  readonly minProtocolVersion: number;
  readonly build: string;
  readonly nodeId: string;
  readonly machineId: string;
  readonly bootId: string;
  readonly instanceId: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly address: string;
  readonly hostname: string;
  readonly highestTerm: Wire64;
  readonly wallMs: Wire64;
  readonly joinToken: string;
  readonly stateDirId: string;
  readonly stateDir: string;
  readonly pid: number;
}

export interface WireWelcome {
  readonly term: Wire64;
  readonly protocolVersion: number;
  readonly build: string;
  readonly heartbeatIntervalMs: number;
  readonly silenceLimitMs: number;
  readonly maxLogTailBytes: number;
  readonly maxMessageBytes: number;
  readonly wallMs: Wire64;
  readonly portFirst: number;
  readonly portLast: number;
  readonly holder: string;
}

export interface WireRefusal {
  readonly code: WireEnum;
  readonly message: string;
  readonly serverBuild: string;
  readonly serverProtocolVersion: number;
}

export interface WireReport {
  readonly sequence: Wire64;
  readonly complete: boolean;
  readonly gpus: readonly WireGpu[];
  readonly shards: readonly WireShard[];
  readonly engines: readonly WireEngineOffer[];
  readonly portsTaken: readonly number[];
  readonly weightsPresent: readonly string[];
  readonly conditions: readonly WireNodeCondition[];
  readonly uptimeMs: Wire64;
}

export interface WireGpu {
  readonly uuid: string;
  readonly type: string;
  readonly vendor: WireEnum;
  readonly busId: string;
  readonly memoryTotalBytes?: Wire64;
  readonly memoryUsedBytes?: Wire64;
  readonly foreign: readonly WireForeignProcess[];
  readonly health: WireEnum;
  readonly healthReason: string;
  readonly healthEvidence: string;
  readonly healthSinceWallMs: Wire64;
  readonly healthClearedBy: string;
  readonly linkedTo: readonly string[];
}

export interface WireForeignProcess {
  readonly pid: number;
  readonly name: string;
  readonly memoryBytes?: Wire64;
}

export interface WireShard {
  readonly shardId: string;
  readonly replicaId: string;
  readonly model: string;
  readonly profile: string;
  readonly generation: Wire64;
  readonly rank: number;
  readonly phase: WireEnum;
  readonly pid: number;
  readonly gpuUuids: readonly string[];
  readonly httpPort: number;
  readonly rendezvousPort: number;
  readonly progress: string;
  readonly exitCode?: number;
  readonly exitSignal: string;
  readonly verdict: string;
  readonly message: string;
  readonly logTail: Uint8Array;
  readonly memoryPeakBytes?: Wire64;
  readonly loadMs?: Wire64;
  readonly phaseAgeMs: Wire64;
  readonly specDigest: string;
}

export interface WireEngineOffer {
  readonly kind: string;
  readonly version: string;
  readonly unavailable: string;
}

export interface WireNodeCondition {
  readonly type: string;
  readonly reason: string;
  readonly blocksPlacement: boolean;
}

export interface WireStartShard {
  readonly term: Wire64;
  readonly commandId: string;
  readonly shardId: string;
  readonly replicaId: string;
  readonly generation: Wire64;
  readonly model: string;
  readonly aliases: readonly string[];
  readonly source: string;
  readonly engine: string;
  readonly profile: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, WireEnvValue>>;
  readonly rank: number;
  readonly shards: number;
  readonly gpuUuids: readonly string[];
  readonly gpuMemoryBytes?: Wire64;
  readonly httpPort: number;
  readonly rendezvousPort: number;
  readonly peers: readonly WirePeer[];
  readonly specDigest: string;
  readonly startTimeoutMs: Wire64;
  readonly stopGraceMs: Wire64;
  readonly maxConcurrency?: number;
}

/** Exactly one of the two is set; `source` names it. */
export interface WireEnvValue {
  readonly value?: string;
  readonly fromFile?: string;
  readonly source?: string;
}

export interface WirePeer {
  readonly rank: number;
  readonly address: string;
  readonly httpPort: number;
  readonly rendezvousPort: number;
}

export interface WireStopShard {
  readonly term: Wire64;
  readonly commandId: string;
  readonly shardId: string;
  readonly generation: Wire64;
  readonly graceMs: Wire64;
  readonly reason: string;
}

export interface WireDrainShard {
  readonly term: Wire64;
  readonly commandId: string;
  readonly shardId: string;
  readonly generation: Wire64;
  readonly over: boolean;
}

export interface WireCommandResult {
  readonly commandId: string;
  readonly outcome: WireEnum;
  readonly message: string;
  readonly verdict: string;
  readonly cause: string;
}

export interface WireFetchLogs {
  readonly requestId: string;
  readonly shardId: string;
  readonly tailLines: number;
  readonly follow: boolean;
  readonly stop: boolean;
  readonly previous: boolean;
}

export interface WireLogChunk {
  readonly requestId: string;
  readonly data: Uint8Array;
  readonly end: boolean;
  readonly error: string;
}
