// Written by scripts/view-schemas.mjs from the types of the answers. Do not edit: run `npm run schemas`.
/** JSON schemas of the admin API's answers, by the name of their type. */
export const VIEW_SCHEMAS: Readonly<Record<string, object>> = {
  AuditView: {
    type: 'object',
    properties: {
      at: {
        type: 'string',
      },
      actor: {
        type: 'string',
      },
      role: {
        type: 'string',
      },
      from: {
        type: 'string',
      },
      action: {
        type: 'string',
      },
      target: {
        type: 'string',
      },
      detail: {
        type: 'string',
      },
      outcome: {
        type: 'string',
        enum: ['ok', 'refused'],
      },
    },
    required: ['at', 'actor', 'role', 'from', 'action', 'target', 'outcome'],
  },
  BackoffView: {
    type: 'object',
    properties: {
      nextTryAt: {
        type: 'string',
      },
      replicaId: {
        type: 'string',
      },
      model: {
        type: 'string',
      },
      profile: {
        type: 'string',
      },
      nodeId: {
        type: 'string',
      },
      cause: {
        type: 'string',
        enum: [
          'unknown',
          'outOfMemory',
          'portTaken',
          'badFlag',
          'missingWeights',
          'gatedRepository',
          'ncclTimeout',
          'xid',
          'illegalInstruction',
          'diskFull',
          'binaryMissing',
          'notAllowed',
          'modelMismatch',
          'noProgress',
          'gpuNotEmpty',
          'peerRankExited',
          'signalled',
          'crashed',
          'hung',
          'exitedCleanly',
        ],
      },
      failures: {
        type: 'number',
      },
      delayMs: {
        type: 'number',
      },
      untilWallMs: {
        type: 'number',
        description: 'Wall time at which the next try is allowed; wall, because it must survive a restart.',
      },
      permanent: {
        type: 'boolean',
        description: 'The cause cannot pass by waiting; an operator or a changed profile clears it.',
      },
      lastMessage: {
        type: 'string',
      },
      lastLogTail: {
        type: 'string',
      },
      lastExitCode: {
        type: 'number',
      },
      lastExitSignal: {
        type: 'string',
      },
      lastFailureWallMs: {
        type: 'number',
      },
      generation: {
        type: 'number',
        description:
          'Generation whose failure was counted last: one failure counts once, however often it is reported.',
      },
      specDigest: {
        type: 'string',
        description: 'Digest of what failed: a changed profile clears a permanent cause.',
      },
    },
    required: [
      'nextTryAt',
      'replicaId',
      'model',
      'profile',
      'nodeId',
      'cause',
      'failures',
      'delayMs',
      'untilWallMs',
      'permanent',
      'lastFailureWallMs',
      'generation',
      'specDigest',
    ],
  },
  CandidateVerdict: {
    type: 'object',
    properties: {
      endpoint: {
        type: 'string',
      },
      generation: {
        type: 'number',
      },
      outstandingRequests: {
        type: 'number',
      },
      outstandingTokens: {
        type: 'number',
      },
      predictedCachedTokens: {
        type: 'number',
      },
      costSeconds: {
        type: 'number',
        description:
          'Estimated seconds; lower is better. NaN where the policy computes none or the candidate was not ranked.',
      },
      rejected: {
        type: 'string',
        enum: [
          'draining',
          'ejected',
          'at_capacity',
          'not_serving_model',
          'zero_weight',
          'wrong_pool',
          'excluded_by_retry',
          'trial_running',
          'cooling_down',
          'over_bounded_load',
          'costlier',
        ],
        description: 'Undefined for the chosen one.',
      },
    },
    required: [
      'endpoint',
      'generation',
      'outstandingRequests',
      'outstandingTokens',
      'predictedCachedTokens',
      'costSeconds',
      'rejected',
    ],
  },
  ClusterEvent: {
    type: 'object',
    properties: {
      sequence: {
        type: 'number',
        description: 'Grows by one with each event, also across restarts.',
      },
      at: {
        type: 'string',
        description: 'ISO 8601.',
      },
      type: {
        type: 'string',
        description: 'What happened, e.g. `ReplicaReady`, `NodeLost`, `DrainRequested`.',
      },
      severity: {
        type: 'string',
        enum: ['info', 'warning', 'error'],
      },
      subject: {
        $ref: '#/components/schemas/EventSubject',
      },
      reason: {
        $ref: '#/components/schemas/Reason',
        description: 'Why, unchanged from where it was decided.',
      },
      actor: {
        type: 'string',
        description: "Who: `reconciler`, `agent`, or the operator's name.",
      },
      related: {
        type: 'array',
        items: {
          $ref: '#/components/schemas/EventSubject',
        },
        description: 'Other things concerned, so that a timeline of a node also shows its replicas.',
      },
    },
    required: ['sequence', 'at', 'type', 'severity', 'subject', 'reason', 'actor', 'related'],
  },
  ConfigStatusView: {
    type: 'object',
    properties: {
      loadedAt: {
        type: 'string',
      },
      lastError: {
        type: 'string',
        description: 'Set when the last reload was refused: the configuration in force is the one before.',
      },
    },
    required: ['loadedAt'],
  },
  ConfigView: {
    type: 'object',
    properties: {
      config: {
        description: 'The configuration in force, secrets masked.',
      },
      status: {
        $ref: '#/components/schemas/ConfigStatusView',
      },
    },
    required: ['config', 'status'],
  },
  DrainMoveView: {
    type: 'object',
    properties: {
      replicaId: {
        type: 'string',
      },
      model: {
        type: 'string',
      },
      inflight: {
        type: 'number',
      },
      target: {
        type: 'object',
        properties: {
          profile: {
            type: 'string',
          },
          shards: {
            type: 'array',
            items: {
              type: 'object',
              properties: {
                nodeId: {
                  type: 'string',
                },
                gpuUuids: {
                  type: 'array',
                  items: {
                    type: 'string',
                  },
                },
              },
              required: ['nodeId', 'gpuUuids'],
            },
          },
        },
        required: ['profile', 'shards'],
        description: 'Where it goes; absent with `reason` when there is no place.',
      },
      reason: {
        $ref: '#/components/schemas/Reason',
      },
      expectedReadyMs: {
        type: 'number',
        description: 'From learned load times; absent while unknown.',
      },
      gapMs: {
        type: 'number',
        description: 'Expected time without a serving replica of the model; 0 = none; absent while unknown.',
      },
    },
    required: ['replicaId', 'model', 'inflight', 'reason'],
  },
  EndpointView: {
    type: 'object',
    properties: {
      id: {
        type: 'string',
      },
      generation: {
        type: 'number',
      },
      url: {
        type: 'string',
      },
      models: {
        type: 'array',
        items: {
          type: 'string',
        },
      },
      pool: {
        type: 'string',
      },
      weight: {
        type: 'number',
      },
      engine: {
        type: 'string',
      },
      state: {
        type: 'string',
        enum: ['up', 'ejected', 'trial', 'coolingDown'],
      },
      reason: {
        type: 'string',
      },
      inflight: {
        type: 'number',
      },
      maxConcurrency: {
        type: 'number',
      },
      outstandingTokens: {
        type: 'number',
      },
      requestsTotal: {
        type: 'number',
      },
      failuresTotal: {
        type: 'number',
      },
      nodeId: {
        type: 'string',
      },
      lastByteAgeMs: {
        type: 'number',
        description: 'Time since the last byte of an answer.',
      },
      engineRunning: {
        type: 'number',
      },
      engineWaiting: {
        type: 'number',
      },
    },
    required: [
      'id',
      'generation',
      'url',
      'models',
      'pool',
      'weight',
      'engine',
      'state',
      'inflight',
      'outstandingTokens',
      'requestsTotal',
      'failuresTotal',
    ],
  },
  EngineOffer: {
    type: 'object',
    properties: {
      kind: {
        type: 'string',
        enum: ['vllm', 'sglang', 'llamacpp', 'command', 'sim', 'embedded'],
      },
      version: {
        type: 'string',
      },
      unavailable: {
        type: 'string',
        description: 'Why the engine cannot be used although configured, e.g. binary missing.',
      },
    },
    required: ['kind'],
  },
  ErrorView: {
    type: 'object',
    properties: {
      error: {
        type: 'object',
        properties: {
          code: {
            type: 'string',
            enum: [
              'unreachable',
              'conflict',
              'invalid_argument',
              'unauthenticated',
              'forbidden',
              'not_found',
              'method_not_allowed',
              'refused',
              'unsupported_media_type',
              'store_unavailable',
              'timed_out',
              'internal_error',
            ],
          },
          message: {
            type: 'string',
          },
          field: {
            type: 'string',
          },
          hint: {
            type: 'string',
          },
        },
        required: ['code', 'message'],
      },
    },
    required: ['error'],
  },
  EventLoopDelay: {
    type: 'object',
    properties: {
      p50: {
        type: 'number',
      },
      p99: {
        type: 'number',
      },
      max: {
        type: 'number',
      },
      mean: {
        type: 'number',
      },
    },
    required: ['p50', 'p99', 'max', 'mean'],
  },
  EventSubject: {
    type: 'object',
    properties: {
      kind: {
        type: 'string',
        enum: ['node', 'gpu', 'model', 'replica', 'server'],
      },
      id: {
        type: 'string',
      },
    },
    required: ['kind', 'id'],
  },
  ExplainedAttempt: {
    type: 'object',
    properties: {
      connectedMs: {
        type: 'number',
      },
      firstEventMs: {
        type: 'number',
      },
      endedMs: {
        type: 'number',
      },
      reusedSocket: {
        type: 'boolean',
      },
      status: {
        type: 'number',
      },
      outcome: {
        type: 'string',
        description: '`ok`, or what went wrong.',
      },
      next: {
        type: 'string',
        description: 'What was decided after a failure, e.g. `retry_elsewhere`.',
      },
      nextBecause: {
        type: 'string',
      },
      number: {
        type: 'number',
        description: '1 is the first.',
      },
      endpoint: {
        type: 'string',
      },
      generation: {
        type: 'number',
      },
      kind: {
        type: 'string',
        enum: ['first', 'retry', 'fresh_socket', 'hedge'],
      },
      startedMs: {
        type: 'number',
      },
    },
    required: [
      'connectedMs',
      'firstEventMs',
      'endedMs',
      'reusedSocket',
      'status',
      'outcome',
      'next',
      'nextBecause',
      'number',
      'endpoint',
      'generation',
      'kind',
      'startedMs',
    ],
  },
  ExplainedChoice: {
    type: 'object',
    properties: {
      atMs: {
        type: 'number',
        description: "Milliseconds after the request's arrival.",
      },
      policy: {
        type: 'string',
      },
      chosen: {
        type: 'string',
      },
      because: {
        type: 'string',
        enum: ['trial', 'ranked', 'last_resort', 'no_endpoint', 'at_capacity', 'all_tried'],
      },
      predictedCachedTokens: {
        type: 'number',
      },
      costSeconds: {
        type: 'number',
      },
      candidates: {
        type: 'array',
        items: {
          $ref: '#/components/schemas/CandidateVerdict',
        },
      },
    },
    required: ['atMs', 'policy', 'chosen', 'because', 'candidates'],
  },
  GpuHealth: {
    type: 'object',
    properties: {
      state: {
        type: 'string',
        enum: ['healthy', 'suspect', 'excluded'],
      },
      reason: {
        type: 'string',
        description:
          'Code of the finding, e.g. `xid_79`, `not_reported`, `remap_failure`; undefined when healthy.',
      },
      evidence: {
        type: 'string',
        description: 'The evidence in words, as found.',
      },
      sinceWallMs: {
        type: 'number',
        description: 'Wall time of the finding, ms, for people.',
      },
      clearedBy: {
        type: 'string',
        description: 'What would clear it, in words.',
      },
    },
    required: ['state'],
  },
  GpuVerdict: {
    type: 'object',
    properties: {
      uuid: {
        type: 'string',
      },
      type: {
        type: 'string',
      },
      fits: {
        type: 'boolean',
      },
      reasons: {
        type: 'array',
        items: {
          $ref: '#/components/schemas/Reason',
        },
      },
      memoryFreeBytes: {
        type: 'number',
      },
      memoryNeededBytes: {
        type: 'number',
      },
      heldBy: {
        type: 'array',
        items: {
          type: 'string',
        },
        description: 'Shards of ours on the device.',
      },
    },
    required: ['uuid', 'type', 'fits', 'reasons', 'heldBy'],
  },
  GpuView: {
    type: 'object',
    properties: {
      uuid: {
        type: 'string',
      },
      nodeId: {
        type: 'string',
      },
      type: {
        type: 'string',
      },
      vendor: {
        type: 'string',
      },
      busId: {
        type: 'string',
      },
      memoryTotalBytes: {
        type: 'number',
      },
      memoryUsedBytes: {
        type: 'number',
      },
      health: {
        $ref: '#/components/schemas/GpuHealth',
      },
      heldBy: {
        type: 'array',
        items: {
          type: 'object',
          properties: {
            shardId: {
              type: 'string',
            },
            replicaId: {
              type: 'string',
            },
            model: {
              type: 'string',
            },
            memoryBytes: {
              type: 'number',
            },
          },
          required: ['shardId', 'replicaId', 'model'],
        },
        description: 'Shards of ours that hold the device, also while they start or stop.',
      },
      foreign: {
        type: 'array',
        items: {
          type: 'object',
          properties: {
            pid: {
              type: 'number',
            },
            name: {
              type: 'string',
            },
            memoryBytes: {
              type: 'number',
            },
          },
          required: ['pid'],
        },
      },
      linkedTo: {
        type: 'array',
        items: {
          type: 'string',
        },
      },
    },
    required: ['uuid', 'nodeId', 'type', 'vendor', 'health', 'heldBy', 'foreign', 'linkedTo'],
  },
  LearnedFact: {
    type: 'object',
    properties: {
      model: {
        type: 'string',
      },
      profile: {
        type: 'string',
      },
      gpuType: {
        type: 'string',
      },
      memoryPeakBytes: {
        type: 'number',
      },
      loadMs: {
        type: 'array',
        items: {
          type: 'number',
        },
        description: 'The last load times, ms, newest last; bounded.',
      },
    },
    required: ['model', 'profile', 'gpuType', 'loadMs'],
  },
  LogView: {
    type: 'object',
    properties: {
      shardId: {
        type: 'string',
      },
      text: {
        type: 'string',
      },
    },
    required: ['shardId', 'text'],
  },
  ModelDetailView: {
    type: 'object',
    properties: {
      profiles: {
        type: 'array',
        items: {
          $ref: '#/components/schemas/Profile',
        },
      },
      fallback: {
        type: 'array',
        items: {
          type: 'string',
        },
      },
      priority: {
        type: 'number',
      },
      replicas: {
        type: 'array',
        items: {
          $ref: '#/components/schemas/ReplicaSummaryView',
        },
      },
      learned: {
        type: 'array',
        items: {
          $ref: '#/components/schemas/LearnedFact',
        },
      },
      backoffs: {
        type: 'array',
        items: {
          $ref: '#/components/schemas/BackoffView',
        },
      },
      notDone: {
        type: 'array',
        items: {
          type: 'object',
          properties: {
            subject: {
              type: 'string',
            },
            reason: {
              $ref: '#/components/schemas/Reason',
            },
          },
          required: ['subject', 'reason'],
        },
      },
      name: {
        type: 'string',
      },
      aliases: {
        type: 'array',
        items: {
          type: 'string',
        },
      },
      source: {
        type: 'string',
      },
      desired: {
        type: 'number',
      },
      declared: {
        type: 'number',
        description: 'The count in the configuration, when `ctl scale` changed it.',
      },
      ready: {
        type: 'number',
      },
      byState: {
        type: 'object',
        properties: {
          failed: {
            type: 'number',
          },
          unreachable: {
            type: 'number',
          },
          pending: {
            type: 'number',
          },
          starting: {
            type: 'number',
          },
          loading: {
            type: 'number',
          },
          ready: {
            type: 'number',
          },
          unhealthy: {
            type: 'number',
          },
          draining: {
            type: 'number',
          },
          stopping: {
            type: 'number',
          },
          backoff: {
            type: 'number',
          },
          unknown: {
            type: 'number',
          },
        },
      },
      outlook: {
        type: 'string',
        enum: ['ready', 'coming', 'none'],
      },
      expectedReadyMs: {
        type: 'number',
      },
      routingProfile: {
        type: 'string',
      },
      reason: {
        $ref: '#/components/schemas/Reason',
        description: 'Why it has fewer Ready replicas than desired.',
      },
      staticEndpoints: {
        type: 'array',
        items: {
          type: 'string',
        },
        description: 'Static endpoints that serve it too.',
      },
    },
    required: [
      'profiles',
      'fallback',
      'priority',
      'replicas',
      'learned',
      'backoffs',
      'notDone',
      'name',
      'aliases',
      'desired',
      'ready',
      'byState',
      'outlook',
      'routingProfile',
      'staticEndpoints',
    ],
  },
  ModelResultView: {
    type: 'object',
    properties: {
      model: {
        type: 'string',
      },
      changed: {
        type: 'boolean',
      },
      desired: {
        type: 'number',
      },
      notes: {
        type: 'array',
        items: {
          type: 'string',
        },
      },
    },
    required: ['model', 'changed', 'desired', 'notes'],
  },
  ModelSummaryView: {
    type: 'object',
    properties: {
      name: {
        type: 'string',
      },
      aliases: {
        type: 'array',
        items: {
          type: 'string',
        },
      },
      source: {
        type: 'string',
      },
      desired: {
        type: 'number',
      },
      declared: {
        type: 'number',
        description: 'The count in the configuration, when `ctl scale` changed it.',
      },
      ready: {
        type: 'number',
      },
      byState: {
        type: 'object',
        properties: {
          failed: {
            type: 'number',
          },
          unreachable: {
            type: 'number',
          },
          pending: {
            type: 'number',
          },
          starting: {
            type: 'number',
          },
          loading: {
            type: 'number',
          },
          ready: {
            type: 'number',
          },
          unhealthy: {
            type: 'number',
          },
          draining: {
            type: 'number',
          },
          stopping: {
            type: 'number',
          },
          backoff: {
            type: 'number',
          },
          unknown: {
            type: 'number',
          },
        },
      },
      outlook: {
        type: 'string',
        enum: ['ready', 'coming', 'none'],
      },
      expectedReadyMs: {
        type: 'number',
      },
      routingProfile: {
        type: 'string',
      },
      reason: {
        $ref: '#/components/schemas/Reason',
        description: 'Why it has fewer Ready replicas than desired.',
      },
      staticEndpoints: {
        type: 'array',
        items: {
          type: 'string',
        },
        description: 'Static endpoints that serve it too.',
      },
    },
    required: [
      'name',
      'aliases',
      'desired',
      'ready',
      'byState',
      'outlook',
      'routingProfile',
      'staticEndpoints',
    ],
  },
  NodeCondition: {
    type: 'object',
    properties: {
      type: {
        type: 'string',
      },
      reason: {
        type: 'string',
      },
      blocksPlacement: {
        type: 'boolean',
        description: 'New shards must not be started while this holds.',
      },
    },
    required: ['type', 'reason', 'blocksPlacement'],
  },
  NodeDetailView: {
    type: 'object',
    properties: {
      bootId: {
        type: 'string',
      },
      machineId: {
        type: 'string',
      },
      gpuDevices: {
        type: 'array',
        items: {
          $ref: '#/components/schemas/GpuView',
        },
      },
      shards: {
        type: 'array',
        items: {
          $ref: '#/components/schemas/ShardView',
        },
      },
      portsTaken: {
        type: 'array',
        items: {
          type: 'number',
        },
      },
      weightsPresent: {
        type: 'array',
        items: {
          type: 'string',
        },
      },
      id: {
        type: 'string',
      },
      state: {
        type: 'string',
        enum: ['unreachable', 'unseen', 'connected', 'lost', 'flapping'],
      },
      stateReason: {
        type: 'string',
      },
      stateSince: {
        type: 'string',
      },
      scheduling: {
        $ref: '#/components/schemas/SchedulingView',
      },
      address: {
        type: 'string',
      },
      hostname: {
        type: 'string',
      },
      agentVersion: {
        type: 'string',
      },
      labels: {
        type: 'object',
        additionalProperties: {
          type: 'string',
        },
      },
      engines: {
        type: 'array',
        items: {
          $ref: '#/components/schemas/EngineOffer',
        },
      },
      gpus: {
        type: 'object',
        properties: {
          total: {
            type: 'number',
          },
          healthy: {
            type: 'number',
          },
          free: {
            type: 'number',
          },
        },
        required: ['total', 'healthy', 'free'],
      },
      replicas: {
        type: 'array',
        items: {
          type: 'string',
        },
        description: 'Ids of the replicas that have a shard here.',
      },
      conditions: {
        type: 'array',
        items: {
          $ref: '#/components/schemas/NodeCondition',
        },
      },
      lastReportAt: {
        type: 'string',
      },
      refused: {
        type: 'array',
        items: {
          $ref: '#/components/schemas/RefusedAgentView',
        },
        description: 'Agents that were refused under this id, newest last.',
      },
    },
    required: [
      'gpuDevices',
      'shards',
      'portsTaken',
      'weightsPresent',
      'id',
      'state',
      'scheduling',
      'address',
      'labels',
      'engines',
      'gpus',
      'replicas',
      'conditions',
    ],
  },
  NodeSummaryView: {
    type: 'object',
    properties: {
      id: {
        type: 'string',
      },
      state: {
        type: 'string',
        enum: ['unreachable', 'unseen', 'connected', 'lost', 'flapping'],
      },
      stateReason: {
        type: 'string',
      },
      stateSince: {
        type: 'string',
      },
      scheduling: {
        $ref: '#/components/schemas/SchedulingView',
      },
      address: {
        type: 'string',
      },
      hostname: {
        type: 'string',
      },
      agentVersion: {
        type: 'string',
      },
      labels: {
        type: 'object',
        additionalProperties: {
          type: 'string',
        },
      },
      engines: {
        type: 'array',
        items: {
          $ref: '#/components/schemas/EngineOffer',
        },
      },
      gpus: {
        type: 'object',
        properties: {
          total: {
            type: 'number',
          },
          healthy: {
            type: 'number',
          },
          free: {
            type: 'number',
          },
        },
        required: ['total', 'healthy', 'free'],
      },
      replicas: {
        type: 'array',
        items: {
          type: 'string',
        },
        description: 'Ids of the replicas that have a shard here.',
      },
      conditions: {
        type: 'array',
        items: {
          $ref: '#/components/schemas/NodeCondition',
        },
      },
      lastReportAt: {
        type: 'string',
      },
      refused: {
        type: 'array',
        items: {
          $ref: '#/components/schemas/RefusedAgentView',
        },
        description: 'Agents that were refused under this id, newest last.',
      },
    },
    required: ['id', 'state', 'scheduling', 'address', 'labels', 'engines', 'gpus', 'replicas', 'conditions'],
  },
  NodeVerdict: {
    type: 'object',
    properties: {
      nodeId: {
        type: 'string',
      },
      fits: {
        type: 'boolean',
      },
      reasons: {
        type: 'array',
        items: {
          $ref: '#/components/schemas/Reason',
        },
        description: 'Every reason that holds, not the first one; empty when it fits.',
      },
      scores: {
        type: 'object',
        additionalProperties: {
          type: 'number',
        },
        description: 'Score parts by scorer, 0..1 each, only when it fits.',
      },
      total: {
        type: 'number',
      },
      gpus: {
        type: 'array',
        items: {
          $ref: '#/components/schemas/GpuVerdict',
        },
      },
    },
    required: ['nodeId', 'fits', 'reasons', 'gpus'],
  },
  PlacementExplanation: {
    type: 'object',
    properties: {
      model: {
        type: 'string',
      },
      profiles: {
        type: 'array',
        items: {
          $ref: '#/components/schemas/ProfileExplanation',
        },
      },
      chosen: {
        type: 'object',
        properties: {
          profile: {
            type: 'string',
          },
          shards: {
            type: 'array',
            items: {
              $ref: '#/components/schemas/ShardAssignment',
            },
          },
          beat: {
            type: 'object',
            properties: {
              nodeId: {
                type: 'string',
              },
              byScore: {
                type: 'number',
              },
            },
            required: ['nodeId', 'byScore'],
            description: 'The best node that lost and by how much.',
          },
        },
        required: ['profile', 'shards'],
        description: 'What was chosen; undefined when nothing fits.',
      },
      counterfactual: {
        $ref: '#/components/schemas/Reason',
        description: 'The nearest change that would make it fit, in words, when nothing does.',
      },
      blocked: {
        $ref: '#/components/schemas/Reason',
        description:
          'Why nothing was placed although something fits (e.g. settling after start), or nothing fits.',
      },
      omittedNodes: {
        type: 'number',
        description:
          'Nodes left out of `profiles` to keep a stored explanation small; 0 or undefined = every node is listed.',
      },
    },
    required: ['model', 'profiles'],
  },
  PlacementView: {
    type: 'object',
    properties: {
      model: {
        type: 'string',
      },
      at: {
        type: 'string',
      },
      basis: {
        type: 'string',
        enum: ['decided', 'now'],
        description: '`decided`: as it was when the replica was placed; `now`: as it would be decided now.',
      },
      replicaId: {
        type: 'string',
      },
      desired: {
        type: 'number',
      },
      have: {
        type: 'number',
      },
      explanation: {
        $ref: '#/components/schemas/PlacementExplanation',
      },
    },
    required: ['model', 'at', 'basis', 'desired', 'have', 'explanation'],
  },
  PlanSummaryView: {
    type: 'object',
    properties: {
      number: {
        type: 'number',
      },
      at: {
        type: 'string',
      },
      actions: {
        type: 'number',
      },
      durationMs: {
        type: 'number',
        description: 'Length of the last reconcile pass.',
      },
      refused: {
        $ref: '#/components/schemas/Reason',
        description: 'Set when the last plan broke an invariant and was refused.',
      },
      notDone: {
        type: 'array',
        items: {
          type: 'object',
          properties: {
            subject: {
              type: 'string',
            },
            reason: {
              $ref: '#/components/schemas/Reason',
            },
          },
          required: ['subject', 'reason'],
        },
        description: 'What is not being done, and why.',
      },
    },
    required: ['number', 'at', 'actions', 'durationMs', 'notDone'],
  },
  Profile: {
    type: 'object',
    properties: {
      name: {
        type: 'string',
      },
      engine: {
        type: 'string',
        enum: ['vllm', 'sglang', 'llamacpp', 'command', 'sim', 'embedded'],
      },
      shards: {
        type: 'number',
        description: 'Nodes per replica; rank 0 serves HTTP.',
      },
      gpus: {
        type: 'number',
        description: 'GPUs per shard; 0 = runs on the CPU.',
      },
      gpuMemoryBytes: {
        type: 'number',
        description:
          'Memory needed on each GPU, bytes; undefined = not declared (then a GPU counts as wholly used).',
      },
      gpuType: {
        type: 'string',
        description: 'Glob over the GPU type, e.g. `H100*`; undefined = any.',
      },
      args: {
        type: 'array',
        items: {
          type: 'string',
        },
        description: "Extra engine arguments; the agent's allow-list decides what passes.",
      },
      env: {
        type: 'object',
        additionalProperties: {
          anyOf: [
            {
              type: 'object',
              properties: {
                value: {
                  type: 'string',
                },
              },
              required: ['value'],
            },
            {
              type: 'object',
              properties: {
                fromFile: {
                  type: 'string',
                },
              },
              required: ['fromFile'],
            },
          ],
        },
      },
      maxConcurrency: {
        type: 'number',
        description: 'Concurrent requests one replica takes; undefined = no limit of ours.',
      },
      startTimeoutMs: {
        type: 'number',
        description: 'A start without any progress for this long has failed, ms.',
      },
      stopGraceMs: {
        type: 'number',
        description: 'Time between TERM and KILL, ms.',
      },
      weight: {
        type: 'number',
        description: "Canary weight of this profile's replicas against others of the model.",
      },
    },
    required: ['name', 'engine', 'shards', 'gpus', 'args', 'env', 'startTimeoutMs', 'stopGraceMs', 'weight'],
  },
  ProfileExplanation: {
    type: 'object',
    properties: {
      profile: {
        type: 'string',
      },
      fits: {
        type: 'boolean',
      },
      nodes: {
        type: 'array',
        items: {
          $ref: '#/components/schemas/NodeVerdict',
        },
      },
      reasons: {
        type: 'array',
        items: {
          $ref: '#/components/schemas/Reason',
        },
        description: 'Profile-wide reasons, e.g. not enough nodes for the gang.',
      },
    },
    required: ['profile', 'fits', 'nodes', 'reasons'],
  },
  Reason: {
    type: 'object',
    properties: {
      code: {
        type: 'string',
      },
      message: {
        type: 'string',
        description: 'One sentence with the numbers in it.',
      },
      numbers: {
        type: 'object',
        additionalProperties: {
          type: 'number',
        },
      },
    },
    required: ['code', 'message'],
  },
  RefusedAgentView: {
    type: 'object',
    properties: {
      at: {
        type: 'string',
      },
      from: {
        type: 'string',
      },
      reason: {
        $ref: '#/components/schemas/Reason',
      },
      count: {
        type: 'number',
      },
    },
    required: ['at', 'from', 'reason', 'count'],
  },
  RemovedView: {
    type: 'object',
    properties: {
      removed: {
        type: 'string',
      },
    },
    required: ['removed'],
  },
  ReplicaDetailView: {
    type: 'object',
    properties: {
      shards: {
        type: 'array',
        items: {
          $ref: '#/components/schemas/ShardView',
        },
      },
      backoff: {
        $ref: '#/components/schemas/BackoffView',
      },
      placement: {
        $ref: '#/components/schemas/PlacementExplanation',
        description: 'The placement decision as it was made.',
      },
      specDigest: {
        type: 'string',
      },
      id: {
        type: 'string',
      },
      model: {
        type: 'string',
      },
      profile: {
        type: 'string',
      },
      engine: {
        type: 'string',
      },
      state: {
        type: 'string',
        enum: [
          'failed',
          'unreachable',
          'pending',
          'starting',
          'loading',
          'ready',
          'unhealthy',
          'draining',
          'stopping',
          'backoff',
          'unknown',
        ],
      },
      reason: {
        $ref: '#/components/schemas/Reason',
      },
      generation: {
        type: 'number',
      },
      intent: {
        type: 'string',
        enum: ['run', 'drain', 'stop'],
      },
      intentReason: {
        $ref: '#/components/schemas/Reason',
      },
      nodes: {
        type: 'array',
        items: {
          type: 'string',
        },
      },
      address: {
        type: 'string',
        description: 'Address of rank 0, `host:port`.',
      },
      published: {
        type: 'boolean',
        description: 'True while the router may send to it.',
      },
      inflight: {
        type: 'number',
      },
      restarts: {
        type: 'number',
      },
      createdAt: {
        type: 'string',
      },
      readySince: {
        type: 'string',
      },
      progress: {
        type: 'string',
      },
      replaces: {
        type: 'string',
      },
      nextTryAt: {
        type: 'string',
      },
    },
    required: [
      'shards',
      'specDigest',
      'id',
      'model',
      'profile',
      'state',
      'generation',
      'intent',
      'intentReason',
      'nodes',
      'published',
      'inflight',
      'restarts',
      'createdAt',
    ],
  },
  ReplicaSummaryView: {
    type: 'object',
    properties: {
      id: {
        type: 'string',
      },
      model: {
        type: 'string',
      },
      profile: {
        type: 'string',
      },
      engine: {
        type: 'string',
      },
      state: {
        type: 'string',
        enum: [
          'failed',
          'unreachable',
          'pending',
          'starting',
          'loading',
          'ready',
          'unhealthy',
          'draining',
          'stopping',
          'backoff',
          'unknown',
        ],
      },
      reason: {
        $ref: '#/components/schemas/Reason',
      },
      generation: {
        type: 'number',
      },
      intent: {
        type: 'string',
        enum: ['run', 'drain', 'stop'],
      },
      intentReason: {
        $ref: '#/components/schemas/Reason',
      },
      nodes: {
        type: 'array',
        items: {
          type: 'string',
        },
      },
      address: {
        type: 'string',
        description: 'Address of rank 0, `host:port`.',
      },
      published: {
        type: 'boolean',
        description: 'True while the router may send to it.',
      },
      inflight: {
        type: 'number',
      },
      restarts: {
        type: 'number',
      },
      createdAt: {
        type: 'string',
      },
      readySince: {
        type: 'string',
      },
      progress: {
        type: 'string',
      },
      replaces: {
        type: 'string',
      },
      nextTryAt: {
        type: 'string',
      },
    },
    required: [
      'id',
      'model',
      'profile',
      'state',
      'generation',
      'intent',
      'intentReason',
      'nodes',
      'published',
      'inflight',
      'restarts',
      'createdAt',
    ],
  },
  RequestExplanation: {
    type: 'object',
    properties: {
      requestId: {
        type: 'string',
      },
      receivedWallMs: {
        type: 'number',
      },
      route: {
        type: 'string',
      },
      model: {
        type: 'string',
      },
      alias: {
        type: 'string',
        description: 'The name the client used, when it is an alias.',
      },
      routingProfile: {
        type: 'string',
      },
      stream: {
        type: 'boolean',
      },
      bodyBytes: {
        type: 'number',
      },
      estimatedPromptTokens: {
        type: 'number',
      },
      phases: {
        type: 'array',
        items: {
          type: 'object',
          properties: {
            phase: {
              type: 'string',
            },
            atMs: {
              type: 'number',
            },
          },
          required: ['phase', 'atMs'],
        },
        description: 'Phases reached, in order, with the time of each.',
      },
      choices: {
        type: 'array',
        items: {
          $ref: '#/components/schemas/ExplainedChoice',
        },
      },
      attempts: {
        type: 'array',
        items: {
          $ref: '#/components/schemas/ExplainedAttempt',
        },
      },
      status: {
        type: 'number',
      },
      error: {
        type: 'string',
        enum: [
          'not_found',
          'method_not_allowed',
          'unsupported_media_type',
          'internal_error',
          'invalid_json',
          'missing_model',
          'invalid_model',
          'duplicate_model',
          'bad_request',
          'invalid_api_key',
          'model_not_allowed',
          'model_not_found',
          'request_too_large',
          'header_fields_too_large',
          'rate_limit_exceeded',
          'queue_full',
          'client_closed',
          'upstream_connect_failed',
          'upstream_reset',
          'upstream_protocol_error',
          'bad_upstream_redirect',
          'upstream_aborted',
          'no_ready_replica',
          'queue_timeout',
          'shutting_down',
          'connect_timeout',
          'first_token_timeout',
          'idle_timeout',
          'total_timeout',
        ],
        description: "Code of the gateway's own error or, after commit, of what broke the answer.",
      },
      allTried: {
        type: 'boolean',
        description: '`x-should-retry: false` was sent: every replica that might have answered was tried.',
      },
      usage: {
        $ref: '#/components/schemas/Usage',
      },
      endedMs: {
        type: 'number',
      },
    },
    required: ['requestId', 'receivedWallMs', 'route', 'phases', 'choices', 'attempts'],
  },
  SchedulingResultView: {
    type: 'object',
    properties: {
      node: {
        type: 'string',
      },
      changed: {
        type: 'boolean',
        description: 'False with `?plan=true`, or when the node was already so.',
      },
      scheduling: {
        $ref: '#/components/schemas/SchedulingView',
      },
      moves: {
        type: 'array',
        items: {
          $ref: '#/components/schemas/DrainMoveView',
        },
        description: 'What a drain moves; empty for cordon and uncordon.',
      },
      gapExpected: {
        type: 'boolean',
        description:
          'True when a model would be without a serving replica for a while, which needs `allowGap`.',
      },
      notes: {
        type: 'array',
        items: {
          type: 'string',
        },
        description: 'Sentences for the operator, e.g. the next command.',
      },
    },
    required: ['node', 'changed', 'scheduling', 'moves', 'gapExpected', 'notes'],
  },
  SchedulingView: {
    type: 'object',
    properties: {
      target: {
        type: 'string',
        enum: ['schedulable', 'cordoned', 'drained'],
      },
      state: {
        type: 'string',
        enum: ['draining', 'schedulable', 'cordoned', 'drained'],
        description:
          '`draining` while replicas still stand there; `drained` only on confirmed stops or a Lost node.',
      },
      actor: {
        type: 'string',
      },
      reason: {
        type: 'string',
      },
      since: {
        type: 'string',
      },
      gpuUuid: {
        type: 'string',
      },
      deadlineMs: {
        type: 'number',
      },
      streamGraceMs: {
        type: 'number',
      },
      allowGap: {
        type: 'boolean',
      },
      sequence: {
        type: 'number',
      },
      waitingFor: {
        type: 'array',
        items: {
          type: 'object',
          properties: {
            replicaId: {
              type: 'string',
            },
            reason: {
              $ref: '#/components/schemas/Reason',
            },
          },
          required: ['replicaId', 'reason'],
        },
        description: 'What the drain still waits for, one entry per replica.',
      },
    },
    required: ['target', 'state', 'sequence', 'waitingFor'],
  },
  ShardAssignment: {
    type: 'object',
    properties: {
      shardId: {
        type: 'string',
      },
      rank: {
        type: 'number',
      },
      nodeId: {
        type: 'string',
      },
      gpuUuids: {
        type: 'array',
        items: {
          type: 'string',
        },
      },
      gpuMemoryBytes: {
        type: 'number',
        description: 'Memory booked on each GPU, bytes; undefined = the whole device.',
      },
      ports: {
        $ref: '#/components/schemas/ShardPorts',
      },
    },
    required: ['shardId', 'rank', 'nodeId', 'gpuUuids', 'ports'],
  },
  ShardPorts: {
    type: 'object',
    properties: {
      http: {
        type: 'number',
        description: 'HTTP of rank 0, or the RPC port of a worker rank.',
      },
      rendezvous: {
        type: 'number',
        description:
          'Rendezvous port of the gang, the same on every rank; undefined for single-shard replicas.',
      },
    },
    required: ['http'],
  },
  ShardView: {
    type: 'object',
    properties: {
      id: {
        type: 'string',
      },
      replicaId: {
        type: 'string',
      },
      model: {
        type: 'string',
      },
      profile: {
        type: 'string',
      },
      generation: {
        type: 'number',
      },
      rank: {
        type: 'number',
      },
      nodeId: {
        type: 'string',
      },
      gpuUuids: {
        type: 'array',
        items: {
          type: 'string',
        },
      },
      httpPort: {
        type: 'number',
      },
      rendezvousPort: {
        type: 'number',
      },
      phase: {
        type: 'string',
        enum: [
          'starting',
          'loading',
          'ready',
          'unhealthy',
          'stopping',
          'unknown',
          'waitingForGpu',
          'downloading',
          'compiling',
          'probing',
          'exited',
        ],
        description: 'Absent while the agent reports nothing about it.',
      },
      phaseAgeMs: {
        type: 'number',
      },
      pid: {
        type: 'number',
      },
      progress: {
        type: 'string',
      },
      exitCode: {
        type: 'number',
      },
      exitSignal: {
        type: 'string',
      },
      verdict: {
        type: 'string',
        enum: [
          'unknown',
          'outOfMemory',
          'portTaken',
          'badFlag',
          'missingWeights',
          'gatedRepository',
          'ncclTimeout',
          'xid',
          'illegalInstruction',
          'diskFull',
          'binaryMissing',
          'notAllowed',
          'modelMismatch',
          'noProgress',
          'gpuNotEmpty',
          'peerRankExited',
          'signalled',
          'crashed',
          'hung',
          'exitedCleanly',
        ],
      },
      message: {
        type: 'string',
      },
      logTail: {
        type: 'string',
      },
      memoryPeakBytes: {
        type: 'number',
      },
      loadMs: {
        type: 'number',
      },
      wanted: {
        type: 'boolean',
        description: 'False for a shard the agent reports although no record of ours asks for it.',
      },
    },
    required: [
      'id',
      'replicaId',
      'model',
      'profile',
      'generation',
      'rank',
      'nodeId',
      'gpuUuids',
      'httpPort',
      'wanted',
    ],
  },
  StatusView: {
    type: 'object',
    properties: {
      version: {
        type: 'string',
      },
      mode: {
        type: 'string',
        enum: ['control', 'router'],
        description: '`router` = static endpoints only, no control plane in this process.',
      },
      now: {
        type: 'string',
      },
      startedAt: {
        type: 'string',
      },
      uptimeMs: {
        type: 'number',
      },
      pid: {
        type: 'number',
      },
      term: {
        type: 'number',
        description: 'Incarnation of the control plane; absent in a router-only run.',
      },
      addresses: {
        type: 'object',
        properties: {
          client: {
            type: 'string',
          },
          admin: {
            type: 'string',
          },
          agent: {
            type: 'string',
          },
        },
      },
      models: {
        type: 'object',
        properties: {
          total: {
            type: 'number',
          },
          ready: {
            type: 'number',
          },
        },
        required: ['total', 'ready'],
        description: 'Whether requests can be served: models with a usable endpoint among those declared.',
      },
      replicas: {
        type: 'object',
        properties: {
          desired: {
            type: 'number',
          },
          byState: {
            type: 'object',
            properties: {
              failed: {
                type: 'number',
              },
              unreachable: {
                type: 'number',
              },
              pending: {
                type: 'number',
              },
              starting: {
                type: 'number',
              },
              loading: {
                type: 'number',
              },
              ready: {
                type: 'number',
              },
              unhealthy: {
                type: 'number',
              },
              draining: {
                type: 'number',
              },
              stopping: {
                type: 'number',
              },
              backoff: {
                type: 'number',
              },
              unknown: {
                type: 'number',
              },
            },
          },
        },
        required: ['desired', 'byState'],
      },
      nodes: {
        type: 'object',
        properties: {
          total: {
            type: 'number',
          },
          byState: {
            type: 'object',
            properties: {
              unreachable: {
                type: 'number',
              },
              unseen: {
                type: 'number',
              },
              connected: {
                type: 'number',
              },
              lost: {
                type: 'number',
              },
              flapping: {
                type: 'number',
              },
            },
          },
        },
        required: ['total', 'byState'],
      },
      gpus: {
        type: 'object',
        properties: {
          total: {
            type: 'number',
          },
          byHealth: {
            type: 'object',
            properties: {
              healthy: {
                type: 'number',
              },
              suspect: {
                type: 'number',
              },
              excluded: {
                type: 'number',
              },
            },
          },
        },
        required: ['total', 'byHealth'],
      },
      endpoints: {
        type: 'object',
        properties: {
          total: {
            type: 'number',
          },
          up: {
            type: 'number',
          },
        },
        required: ['total', 'up'],
      },
      requestsInFlight: {
        type: 'number',
      },
      plan: {
        $ref: '#/components/schemas/PlanSummaryView',
      },
      store: {
        type: 'object',
        properties: {
          ok: {
            type: 'boolean',
          },
          reason: {
            type: 'string',
          },
        },
        required: ['ok'],
      },
      config: {
        $ref: '#/components/schemas/ConfigStatusView',
      },
      warnings: {
        type: 'array',
        items: {
          $ref: '#/components/schemas/Reason',
        },
        description: "What needs an operator's eye, worst first; empty when all is well.",
      },
    },
    required: [
      'version',
      'mode',
      'now',
      'startedAt',
      'uptimeMs',
      'pid',
      'addresses',
      'models',
      'replicas',
      'nodes',
      'gpus',
      'endpoints',
      'requestsInFlight',
      'config',
      'warnings',
    ],
  },
  Usage: {
    type: 'object',
    properties: {
      promptTokens: {
        type: 'number',
      },
      completionTokens: {
        type: 'number',
      },
      cachedTokens: {
        type: 'number',
        description: "Prompt tokens that came out of the engine's cache; part of `promptTokens`.",
      },
    },
    required: ['promptTokens', 'completionTokens', 'cachedTokens'],
  },
};
