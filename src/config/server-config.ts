/**
 * The server's configuration as the rest of the program sees it: every field carries the name it has in the file,
 * durations are milliseconds, sizes are bytes, shares are fractions. Instances are frozen and complete: defaults are filled in.
 */
import type { EngineKind } from '../domain/cluster.js';

/** Milliseconds; written with a unit in the file (`30s`). 0 switches a deadline off. */
export type DurationMs = number;
/** Bytes; written with a unit in the file (`64MiB`). */
export type SizeBytes = number;
/** 0..1; written in percent in the file (`20%`). */
export type Share = number;

export type BalancingPolicy = 'roundRobin' | 'leastLoad' | 'powerOfTwo' | 'sessionAffinity' | 'prefixAware';

export class EndpointConfig {
  id!: string;
  url!: string;
  models!: string[];
  pool = 'static';
  weight = 1;
  /** File holding the endpoint's API key. */
  apiKeyFile?: string;
  maxConcurrency?: number;
  engine: EngineKind | 'unknown' = 'unknown';
}

export class PlacementConfig {
  strategy: 'pack' | 'spread' = 'pack';
  nodeSelector: Record<string, string> = {};
  spreadBy?: string;
  antiAffinity = false;
}

export class EnvFromFile {
  fromFile!: string;
}

export class ProfileConfig {
  name!: string;
  engine!: EngineKind;
  shards = 1;
  gpus = 0;
  gpuMemory?: SizeBytes;
  gpuType?: string;
  args: string[] = [];
  env: Record<string, string | EnvFromFile> = {};
  maxConcurrency?: number;
  startTimeout: DurationMs = 600_000;
  stopGrace: DurationMs = 30_000;
  weight = 1;
}

export class ModelConfig {
  name!: string;
  aliases: string[] = [];
  source?: string;
  replicas = 1;
  routing?: string;
  fallback: string[] = [];
  priority = 100;
  placement = new PlacementConfig();
  profiles: ProfileConfig[] = [];
}

export class DeadlinesConfig {
  queue: DurationMs = 30_000;
  connect: DurationMs = 2_000;
  firstToken: DurationMs = 60_000;
  firstTokenPer1kTokens: DurationMs = 1_000;
  idle: DurationMs = 60_000;
  total: DurationMs = 0;
  /** How long one write to a client may stall before the stream is ended; blames nobody. */
  clientStall: DurationMs = 60_000;
}

export class RetriesConfig {
  /** Attempts in all, the first one included. */
  attempts = 3;
  budget: Share = 0.2;
}

export class QueueConfig {
  max = 1_000;
  priority = 100;
}

export class HedgingConfig {
  after: DurationMs = 0;
  budget: Share = 0.02;
}

export class RoutingProfileConfig {
  policy: BalancingPolicy = 'prefixAware';
  deadlines = new DeadlinesConfig();
  retries = new RetriesConfig();
  queue = new QueueConfig();
  holdHeaders: DurationMs = 10_000;
  hedging = new HedgingConfig();
}

export class CorsConfig {
  origins: string[] = [];
}

export class RouterConfig {
  defaultProfile = 'interactive';
  bodyLimit: SizeBytes = 64 * 1024 * 1024;
  profiles: Record<string, RoutingProfileConfig> = { interactive: new RoutingProfileConfig() };
  keepAliveTimeout: DurationMs = 75_000;
  cors = new CorsConfig();
}

export class ControlConfig {
  interval: DurationMs = 2_000;
  baseBackoff: DurationMs = 5_000;
  maxBackoff: DurationMs = 300_000;
  unreachableAfter: DurationMs = 15_000;
  lostAfter: DurationMs = 90_000;
  settleAfterStart: DurationMs = 20_000;
  mgmtInterface?: string;
  portRange: [number, number] = [20_000, 20_999];
  /** Engines loading at once in the whole cluster during moves. */
  maxConcurrentLoads = 4;
}

export class AdminTokenConfig {
  name!: string;
  /** `sha256:<hex>` of the token. */
  hash!: string;
  role: 'viewer' | 'operator' | 'admin' = 'viewer';
}

export class TlsConfig {
  certFile!: string;
  keyFile!: string;
  caFile?: string;
}

export class ApiKeysConfig {
  required = false;
}

export class AdminAuthConfig {
  tokens: AdminTokenConfig[] = [];
  tls?: TlsConfig;
}

export class AgentsAuthConfig {
  tls?: TlsConfig;
  /** File with one join token per line; agents present one in their hello. */
  joinTokensFile?: string;
}

export class AuthConfig {
  apiKeys = new ApiKeysConfig();
  admin = new AdminAuthConfig();
  agents = new AgentsAuthConfig();
}

export class LogConfig {
  level: 'debug' | 'info' | 'warn' | 'error' = 'info';
  format: 'json' | 'pretty' = 'json';
}

export class ServerConfig {
  listen = '127.0.0.1:8080';
  adminListen = '127.0.0.1:8081';
  agentListen = '127.0.0.1:8082';
  stateDir = './.llmgw';
  shutdownGrace: DurationMs = 30_000;
  /** Written by hand to allow admin and agent listeners beyond loopback without authentication and TLS. */
  insecure = false;
  endpoints: EndpointConfig[] = [];
  models: ModelConfig[] = [];
  router = new RouterConfig();
  control = new ControlConfig();
  auth = new AuthConfig();
  log = new LogConfig();
}

/** Token under which the frozen server configuration is injected. */
export const SERVER_CONFIG = Symbol('ServerConfig');
