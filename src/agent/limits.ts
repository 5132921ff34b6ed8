/**
 * Every bound of the agent, with its unit in its name. Tests shorten some of them; nothing else does.
 */
export interface AgentTimings {
  /** How often the life of an adopted process is looked at; a child of ours tells by itself. A rank's exit must be reported within 1 s. */
  readonly processPollMs: number;
  /** How often a run's log file is read. */
  readonly logPollMs: number;
  /** A log file is cut when it grows beyond this, bytes; its end stays once as `.old`. Twice this while no agent reads it. */
  readonly logFileMaxBytes: number;
  /** How often it is seen to that a log warden runs while engines do. */
  readonly wardenCheckMs: number;
  /** How often the orphans of engines are looked for where the agent reaps them: the second look reaps. */
  readonly reapIntervalMs: number;
  /** How often it is looked whether process 1 leaves zombies. */
  readonly initCheckMs: number;
  /** After KILL the kernel may still need this long to tear a process down (pinned GPU memory); then it is reported as surviving. */
  readonly killSettleMs: number;
  /** How often the group is looked at while it ends. */
  readonly groupPollMs: number;
  /** First and longest pause between readiness probes. */
  readonly probeMinMs: number;
  readonly probeMaxMs: number;
  /** One plain HTTP probe. */
  readonly probeTimeoutMs: number;
  /** The probe that really generates: first requests compile kernels on some engines. */
  readonly tokenTimeoutMs: number;
  /** Pause between two looks at a Ready engine. */
  readonly livenessIntervalMs: number;
  /** Refused connections in a row before a Ready engine with a live process is called unhealthy. */
  readonly livenessRefusals: number;
  /** Requests run, no token counter moves for this long: hung. */
  readonly stallMs: number;
  /** An idle engine is asked for one token this often. */
  readonly canaryIntervalMs: number;
  /** Canaries without an answer in a row before an idle engine is called hung. */
  readonly canaryMisses: number;
  /** How long a start waits for its GPUs to be empty. */
  readonly gpuWaitMs: number;
  /** Pause between two looks at the GPUs while a start waits. */
  readonly gpuWaitPollMs: number;
  /** Pause between GPU probes. */
  readonly gpuProbeIntervalMs: number;
  /** A probe is killed after this long: drivers are known to block for 45 s and more. */
  readonly gpuProbeTimeoutMs: number;
  /** Without a good probe for this long the node takes no new work. */
  readonly gpuStaleMs: number;
  /** How long the first report waits for adoption and the first GPU probe. */
  readonly firstReportMs: number;
  /** Changes within this time travel in one report. */
  readonly reportDebounceMs: number;
  /** Connect attempts: first and longest ceiling of the jittered pause. */
  readonly reconnectBaseMs: number;
  readonly reconnectMaxMs: number;
  /** A session must have lived this long before the pause starts small again. */
  readonly sessionProvenMs: number;
  /** Pause after a refusal that waiting alone will not change. */
  readonly refusedPauseMs: number;
  /** Pause while another agent holds the node id: the longest that a free id goes unused. */
  readonly takenPauseMs: number;
  /** A dialled stream without welcome for this long is given up. */
  readonly welcomeTimeoutMs: number;
  /** How often facts of the node that change slowly (disk, weights, ports) are looked at. */
  readonly nodeFactsIntervalMs: number;
}

export const DEFAULT_TIMINGS: AgentTimings = {
  processPollMs: 250,
  logPollMs: 250,
  logFileMaxBytes: 16 * 1024 * 1024,
  wardenCheckMs: 30_000,
  reapIntervalMs: 1_000,
  initCheckMs: 10_000,
  killSettleMs: 5_000,
  groupPollMs: 50,
  probeMinMs: 100,
  probeMaxMs: 2_000,
  probeTimeoutMs: 5_000,
  tokenTimeoutMs: 60_000,
  livenessIntervalMs: 5_000,
  livenessRefusals: 3,
  stallMs: 120_000,
  canaryIntervalMs: 60_000,
  canaryMisses: 2,
  gpuWaitMs: 60_000,
  gpuWaitPollMs: 1_000,
  gpuProbeIntervalMs: 5_000,
  gpuProbeTimeoutMs: 30_000,
  gpuStaleMs: 60_000,
  firstReportMs: 5_000,
  reportDebounceMs: 50,
  reconnectBaseMs: 500,
  // A whole fleet is back within 30 s of a server's start, however long it was away.
  reconnectMaxMs: 15_000,
  sessionProvenMs: 30_000,
  refusedPauseMs: 60_000,
  takenPauseMs: 10_000,
  welcomeTimeoutMs: 10_000,
  nodeFactsIntervalMs: 30_000,
};

/** Cleaned lines of a run kept in memory. */
export const LOG_RING_LINES = 2_000;
/** Longest line kept; the rest of it is cut and marked. */
export const LOG_LINE_MAX_CHARS = 4_096;
/** Tail that travels with a failed shard's report. */
export const LOG_TAIL_MAX_BYTES = 16 * 1024;
/** Log bytes in one chunk of a log request. */
export const LOG_CHUNK_MAX_BYTES = 64 * 1024;
/** Log requests served at once over one stream. */
export const LOG_REQUESTS_MAX = 32;
/** Shards whose end is remembered until the server has cleared them. */
export const EXITED_SHARDS_MAX = 64;
/** Directories of shards that are gone, kept for their logs; the longest untouched go first. */
export const SHARD_DIRECTORIES_MAX = 64;
/** Longest answer of an engine that a probe reads. */
export const PROBE_BODY_MAX_BYTES = 1024 * 1024;
/** Free disk below which starts are refused and the node says so. */
export const DISK_FREE_MIN_BYTES = 256 * 1024 * 1024;
/** Free disk asked for before an engine may download weights whose size nobody knows. */
export const DISK_FREE_DOWNLOAD_MIN_BYTES = 2 * 1024 * 1024 * 1024;
/** Weights listed in a report. */
export const WEIGHTS_LISTED_MAX = 256;
