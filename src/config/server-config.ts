/**
 * The server's configuration as the rest of the program sees it: every field carries the name it has in the file,
 * durations are milliseconds, sizes are bytes, shares are fractions. Instances are frozen and complete: defaults are filled in.
 */
import { POLICY_NAMES, type PolicyName } from '../domain/balancing/candidate.js';
import { ENGINE_KINDS, type EngineKind } from '../domain/model-spec.js';
import { AuthConfig } from './auth-config.js';
import {
  Address,
  Choice,
  Decimal,
  Duration,
  ENV_NAME,
  EndpointUrl,
  ID,
  LABEL_KEY,
  MODEL_NAME,
  Nested,
  NestedList,
  NestedMap,
  Percent,
  Range,
  Size,
  Text,
  TextList,
  TextMap,
  TextOrObjectMap,
  Toggle,
  Whole,
} from './setting.js';

/** Milliseconds; written with a unit in the file (`30s`). 0 switches a deadline off. */
export type DurationMs = number;
/** Bytes; written with a unit in the file (`64MiB`). */
export type SizeBytes = number;
/** 0..1; written in percent in the file (`20%`). */
export type Share = number;

export type BalancingPolicy = PolicyName;

export class EndpointConfig {
  @Text({ required: true, rule: ID, doc: 'Name of the endpoint in logs, metrics and `ctl`.' })
  id!: string;

  @EndpointUrl({
    required: true,
    doc: 'Where the engine is: `http://host:port`, with a path prefix if it has one, without `/v1`.',
  })
  url!: string;

  @TextList({
    required: true,
    of: 'model names',
    rule: MODEL_NAME,
    doc: 'Models served there, as the engine knows them.',
  })
  models!: string[];

  @Text({ rule: ID, doc: 'Group the endpoint belongs to.' })
  pool = 'static';

  @Decimal({
    min: 0,
    max: 1_000,
    doc: 'Share of the load against other endpoints of the model; 0 takes none.',
  })
  weight = 1;

  @Text({
    doc: "File holding the engine's API key, sent to this endpoint and nowhere else.",
    unset: 'no key',
  })
  apiKeyFile?: string;

  @Whole({
    min: 1,
    max: 1_000_000,
    doc: 'Requests sent there at once; more wait in the queue.',
    unset: 'no limit',
  })
  maxConcurrency?: number;

  @Choice([...ENGINE_KINDS, 'unknown'], {
    doc: "Engine behind the URL; lets the router read the engine's load metrics.",
  })
  engine: EngineKind | 'unknown' = 'unknown';
}

export class PlacementConfig {
  @Choice(['pack', 'spread'], {
    doc: '`pack` leaves the largest hole free for big models; `spread` puts replicas on different nodes and the emptiest GPUs first; what serves is never moved only for that.',
  })
  strategy: 'pack' | 'spread' = 'pack';

  @TextMap({ of: 'labels', keyRule: LABEL_KEY, doc: 'Labels a node must carry, all of them.' })
  nodeSelector: Record<string, string> = {};

  @Text({
    rule: LABEL_KEY,
    doc: 'Label whose values are failure domains, e.g. `rack`.',
    unset: 'the node itself',
  })
  spreadBy?: string;

  @Toggle({ doc: 'At most one replica of the model per node.' })
  antiAffinity = false;

  @Toggle({
    doc: 'Its replicas may be moved, or stopped where nothing else is spare, to make room for a missing replica of a model with a higher `priority`.',
  })
  mayYield = false;
}

export class EnvFromFile {
  @Text({ required: true, doc: "File on the agent's machine whose content is the value." })
  fromFile!: string;
}

export class ProfileConfig {
  @Text({ required: true, rule: ID, doc: 'Name of the launch profile, unique within the model.' })
  name!: string;

  @Choice(ENGINE_KINDS, { required: true, doc: 'Engine that runs the model.' })
  engine!: EngineKind;

  @Whole({ min: 1, max: 64, doc: 'Nodes per replica.' })
  shards = 1;

  @Whole({ min: 0, max: 64, doc: 'GPUs per shard; 0 runs on the CPU.' })
  gpus = 0;

  @Size({
    doc: 'Memory needed on each GPU; what was measured in real starts of the same engine refines it.',
    unset: 'the whole GPU',
  })
  gpuMemory?: SizeBytes;

  @Text({ doc: 'Glob over the GPU type, e.g. `H100*`.', unset: 'any' })
  gpuType?: string;

  @TextList({
    of: 'arguments',
    repeatable: true,
    doc: "Extra arguments of the engine, one list element each; the agent's own file decides which may pass.",
  })
  args: string[] = [];

  @TextOrObjectMap(() => EnvFromFile, {
    of: 'environment variables',
    keyRule: ENV_NAME,
    doc: "Environment of the engine: text, or `{ fromFile: PATH }` read on the agent's machine.",
  })
  env: Record<string, string | EnvFromFile> = {};

  @Whole({ min: 1, max: 1_000_000, doc: 'Requests sent to one replica at once.', unset: 'no limit' })
  maxConcurrency?: number;

  @Duration({ minMs: 1_000, doc: 'A start without any progress for this long has failed.' })
  startTimeout: DurationMs = 600_000;

  @Duration({ off: true, doc: 'Time between TERM and KILL when an engine is stopped; `0s` kills at once.' })
  stopGrace: DurationMs = 30_000;

  @Decimal({ min: 0, max: 1_000, doc: "Share of the load against replicas of the model's other profiles." })
  weight = 1;
}

export class CanaryConfig {
  @Text({ rule: MODEL_NAME, doc: 'Model that answers instead.', unset: 'give `model` or `pool`' })
  model?: string;

  @Text({
    rule: ID,
    doc: 'Launch profile, or pool of static endpoints, that serves the share.',
    unset: 'give `model` or `pool`',
  })
  pool?: string;

  @Percent({ required: true, doc: "Share of the model's requests; `0%` sends none there." })
  weight!: number;
}

export class ModelConfig {
  @Text({ required: true, rule: MODEL_NAME, doc: 'Name that clients ask for.' })
  name!: string;

  @TextList({ of: 'names', rule: MODEL_NAME, doc: 'Other names for the same model.' })
  aliases: string[] = [];

  @Text({
    doc: 'Repository id, or a path under an allowed model root of the agent; `sim` needs none and `embedded` has its own.',
    unset: 'none',
  })
  source?: string;

  @Whole({ min: 0, max: 1_000, doc: 'Running copies wanted; `ctl scale` overrides it.' })
  replicas = 1;

  @Text({ rule: ID, doc: 'Routing profile of the model.', unset: '`router.defaultProfile`' })
  routing?: string;

  @TextList({
    of: 'model names',
    rule: MODEL_NAME,
    doc: 'Models that answer, in order, when nothing of this one is ready or all its attempts failed; their own fallbacks follow.',
  })
  fallback: string[] = [];

  @NestedList(() => CanaryConfig, {
    of: 'canaries',
    doc: 'Shares of the requests that go elsewhere on trial; a session stays on its side.',
  })
  canary: CanaryConfig[] = [];

  @Whole({
    min: 0,
    max: 1_000,
    doc: 'Higher is moved and placed first; what runs is displaced only where `placement.mayYield` allows it.',
  })
  priority = 100;

  @Nested(() => PlacementConfig, { doc: "Where the model's replicas may and should stand." })
  placement = new PlacementConfig();

  @Choice(['wait', 'swap'], {
    doc: 'What a changed profile does when the new copy fits nowhere beside the old one: `wait` keeps the old one and says so, `swap` stops one old copy at a time first.',
  })
  onNoSurge: 'wait' | 'swap' = 'wait';

  @NestedList(() => ProfileConfig, { of: 'launch profiles', doc: 'Ways to run the model, best first.' })
  profiles: ProfileConfig[] = [];
}

export class DeadlinesConfig {
  @Duration({ off: true, doc: 'Longest wait in the queue.' })
  queue: DurationMs = 30_000;

  @Duration({ doc: 'Longest wait for a connection to an engine.' })
  connect: DurationMs = 2_000;

  @Duration({
    off: true,
    doc: 'Longest wait for the first token, without the part that grows with the prompt.',
  })
  firstToken: DurationMs = 60_000;

  @Duration({
    off: true,
    doc: 'Added to `firstToken` for each 1,000 tokens of prompt, estimated from its bytes.',
  })
  firstTokenPer1kTokens: DurationMs = 1_000;

  @Duration({ off: true, doc: 'Longest pause between two events of an answer; comments are not events.' })
  idle: DurationMs = 60_000;

  @Duration({ off: true, doc: 'Longest time for a whole request.' })
  total: DurationMs = 0;

  @Duration({
    off: true,
    doc: 'How long one write to a client may stall before the stream is ended; blames no engine.',
  })
  clientStall: DurationMs = 60_000;
}

export class RetriesConfig {
  @Whole({ min: 1, max: 10, doc: 'Attempts in all, the first one included, each on a different endpoint.' })
  attempts = 3;

  @Percent({
    doc: 'Retries allowed as a share of active requests, so that a sick fleet is not buried by retries.',
  })
  budget: Share = 0.2;
}

export class QueueConfig {
  @Whole({ min: 0, max: 1_000_000, doc: 'Requests waiting per model; one more is refused.' })
  max = 1_000;

  @Whole({ min: 0, max: 1_000, doc: 'Priority in the queue; higher goes first.' })
  priority = 100;
}

export class HedgingConfig {
  @Duration({
    off: true,
    doc: 'Ask a second endpoint when the first has not answered for this long; `0s` is off.',
  })
  after: DurationMs = 0;

  @Percent({ doc: 'Second requests allowed as a share of all.' })
  budget: Share = 0.02;
}

export class RoutingProfileConfig {
  @Choice(POLICY_NAMES, { doc: 'How an endpoint is chosen among those that can serve.' })
  policy: BalancingPolicy = 'prefixAware';

  @Nested(() => DeadlinesConfig, { doc: 'Deadlines; `0s` switches one off where it is marked so.' })
  deadlines = new DeadlinesConfig();

  @Nested(() => RetriesConfig, { doc: 'Retries before the answer has begun; never after.' })
  retries = new RetriesConfig();

  @Nested(() => QueueConfig, { doc: 'Waiting requests.' })
  queue = new QueueConfig();

  @Duration({
    off: true,
    doc: 'How long a status may be held back for failover; then headers and keep-alive comments are sent.',
  })
  holdHeaders: DurationMs = 10_000;

  @Nested(() => HedgingConfig, { doc: 'Second requests against slow first tokens.' })
  hedging = new HedgingConfig();
}

export class CorsConfig {
  @TextList({
    of: 'origins',
    doc: 'Origins whose browsers may call the client API, e.g. `https://app.example`.',
  })
  origins: string[] = [];
}

export class RouterConfig {
  @Text({ rule: ID, doc: 'Routing profile of models that name none.' })
  defaultProfile = 'interactive';

  @Size({ minBytes: 1_024, doc: 'Largest request body.' })
  bodyLimit: SizeBytes = 64 * 1024 * 1024;

  @NestedMap(() => RoutingProfileConfig, {
    of: 'routing profiles',
    keyRule: ID,
    doc: 'Routing profiles by name. `interactive` always exists; naming it here changes it.',
  })
  profiles: Record<string, RoutingProfileConfig> = { interactive: new RoutingProfileConfig() };

  @Duration({ minMs: 1_000, doc: 'How long an idle client connection is kept open.' })
  keepAliveTimeout: DurationMs = 75_000;

  @Toggle({
    doc: "Whether requests in the plain form that SDKs send are read from the socket directly, which saves CPU; all others are read by Node's HTTP parser in any case. For connections accepted from then on.",
  })
  fastPath = true;

  @Nested(() => CorsConfig, { doc: 'Access from web pages.' })
  cors = new CorsConfig();
}

export class ControlConfig {
  @Duration({ minMs: 10, doc: 'Pause between two passes of the reconcile loop; events wake it earlier.' })
  interval: DurationMs = 2_000;

  @Duration({ minMs: 10, doc: 'First wait before a failed replica is started again.' })
  baseBackoff: DurationMs = 5_000;

  @Duration({ minMs: 10, doc: 'Longest wait before a failed replica is started again.' })
  maxBackoff: DurationMs = 300_000;

  @Duration({
    minMs: 100,
    doc: 'A node without its agent for this long is Unreachable: nothing new is placed there.',
  })
  unreachableAfter: DurationMs = 15_000;

  @Duration({
    minMs: 100,
    doc: 'A node without its agent for this long is Lost: replacements start elsewhere.',
  })
  lostAfter: DurationMs = 90_000;

  @Duration({
    off: true,
    doc: 'After a start of the server nothing is placed until all known nodes reported, or this long; when its state was lost or restored, this long after the first agent came.',
  })
  settleAfterStart: DurationMs = 20_000;

  @Text({
    doc: "Agents' interface for engine traffic and traffic between ranks.",
    unset: "each agent's own setting",
  })
  mgmtInterface?: string;

  @Range({ min: 1_024, max: 65_535, doc: 'First and last port given to engines.' })
  portRange: [number, number] = [20_000, 20_999];

  @Whole({ min: 1, max: 1_000, doc: 'Engines loading at once in the whole cluster during moves.' })
  maxConcurrentLoads = 4;

  @Duration({
    minMs: 100,
    doc: 'How long a new copy must stay Ready before the old one in whose place it is leaves the router.',
  })
  steadyAfter: DurationMs = 10_000;

  @Duration({
    minMs: 1_000,
    doc: 'A new copy that takes longer than this, and than twice the usual time of its load, is called overdue; the old one goes on serving.',
  })
  replacementBound: DurationMs = 600_000;

  @Duration({
    off: true,
    doc: 'How long streams on a copy that leaves may go on; `drain --stream-grace` shortens it.',
  })
  streamGrace: DurationMs = 900_000;

  @Duration({
    minMs: 1_000,
    doc: 'A drain that takes longer is told of, and needs leave to go on: `drain --allow-gap`; `drain --deadline` gives its own.',
  })
  drainDeadline: DurationMs = 3_600_000;
}

export class LogConfig {
  @Choice(['debug', 'info', 'warn', 'error'], { doc: 'Least severe level that is written.' })
  level: 'debug' | 'info' | 'warn' | 'error' = 'info';

  @Choice(['json', 'pretty'], {
    atStart: true,
    doc: '`json` for machines, `pretty` for a terminal; always on standard error.',
  })
  format: 'json' | 'pretty' = 'json';
}

export class ServerConfig {
  @Address({ atStart: true, doc: 'Client API.' })
  listen = '127.0.0.1:8080';

  @Address({
    atStart: true,
    doc: 'Admin API, `/metrics`, `/livez`, `/readyz`. Beyond loopback only with tokens and TLS.',
  })
  adminListen = '127.0.0.1:8081';

  @Address({
    atStart: true,
    doc: 'gRPC for agents. Beyond loopback only with join tokens (or client certificates) and TLS.',
  })
  agentListen = '127.0.0.1:8082';

  @Text({
    atStart: true,
    doc: "Directory of the server's state, relative to where the server is started.",
  })
  stateDir = './.llmgw';

  @Duration({ off: true, doc: 'How long a stopping server lets running requests finish.' })
  shutdownGrace: DurationMs = 30_000;

  @Duration({
    off: true,
    doc: 'How long a stopping server goes on serving while `/readyz` says no and each answer ends its connection: time for load balancers to look elsewhere. `shutdownGrace` begins after it.',
  })
  shutdownDelay: DurationMs = 0;

  @Toggle({
    atStart: true,
    doc: 'Allows admin and agent listeners beyond loopback without authentication and TLS.',
  })
  insecure = false;

  @Toggle({
    doc: 'Whether a change of the file is taken over by itself. Without it a change waits for `ctl config reload` or SIGHUP.',
  })
  watchConfig = true;

  @NestedList(() => EndpointConfig, {
    of: 'endpoints',
    doc: 'Static endpoints: engines that run elsewhere. A router-only server needs nothing else.',
  })
  endpoints: EndpointConfig[] = [];

  @NestedList(() => ModelConfig, { of: 'models', doc: 'Models placed and run on the machines of agents.' })
  models: ModelConfig[] = [];

  @Nested(() => RouterConfig, { doc: 'Data plane.' })
  router = new RouterConfig();

  @Nested(() => ControlConfig, { doc: 'Control plane.' })
  control = new ControlConfig();

  @Nested(() => AuthConfig, { doc: 'Who may do what.' })
  auth = new AuthConfig();

  @Nested(() => LogConfig, { doc: 'The log of the process.' })
  log = new LogConfig();
}

/** Token under which the configuration in force is injected: every read sees the latest, see `ConfigInForce`. */
export const SERVER_CONFIG = Symbol('ServerConfig');
