/** Reads from an engine's last words and its exit why it ended. */
import type { Verdict } from '../../domain/cluster.js';
import type { ProcessExit } from '../supervisor.js';

export interface EndVerdict {
  readonly verdict: Verdict;
  /** One line for people: the telling line of the log, or the exit in words. */
  readonly message: string;
}

interface VerdictPattern {
  readonly verdict: Verdict;
  readonly pattern: RegExp;
}

/**
 * Root causes before their consequences: a full disk makes weights look broken, a fallen GPU makes NCCL time out.
 * Written for lines without control characters.
 */
const PATTERNS: readonly VerdictPattern[] = [
  {
    verdict: 'diskFull',
    pattern: /No space left on device|ENOSPC|Disk quota exceeded|not enough free disk space/i,
  },
  {
    verdict: 'xid',
    pattern:
      /NVRM: Xid|\bXid \(PCI|fallen off the bus|GPU is lost|uncorrectable (?:NVLink|ECC) error|CUDA error: (?:unspecified launch failure|an uncorrectable)|Unable to determine the device handle/i,
  },
  {
    verdict: 'gatedRepository',
    pattern:
      /GatedRepoError|gated repo|Access to (?:model|this repo).* (?:is )?restricted|(?:401|403) Client Error|Invalid (?:username or password|credentials).*hugging/i,
  },
  {
    verdict: 'portTaken',
    pattern:
      /EADDRINUSE|address (?:is )?already in use|couldn'?t bind (?:HTTP )?server socket|failed to bind|port \d+ is (?:already )?(?:in use|occupied)/i,
  },
  {
    verdict: 'badFlag',
    pattern:
      /unrecognized arguments?:|(?:^|\s)error: argument |invalid choice:|error: (?:invalid|unknown) argument|unknown (?:option|argument|flag)|unrecognized option|expected (?:one|at least one) argument|the following arguments are required|error while handling argument/i,
  },
  {
    verdict: 'outOfMemory',
    pattern:
      /(?:CUDA|HIP|ROCm|Metal|Vulkan)(?: error:?)? out of memory|OutOfMemoryError|cudaMalloc failed: out of memory|No available memory for the cache blocks|Free memory on device .*less than desired|Not enough memory\.? |larger than the (?:maximum|available) .*KV cache|failed to allocate .*(?:buffer|memory|KV)|std::bad_alloc|ErrorOutOf(?:Device|Host)Memory|Cannot allocate memory|JavaScript heap out of memory|Out of memory: Killed/i,
  },
  // Not the local kind of EntryNotFoundError: an outage of the network ends in it too, and that passes.
  {
    verdict: 'missingWeights',
    pattern:
      /RepositoryNotFoundError|Repository Not Found|RevisionNotFoundError|(?<!Local)EntryNotFoundError|outgoing traffic has been disabled|is not a valid model identifier|is not a local folder and is not a valid|does not appear to have a file named|Cannot find any model weights|(?:No such file or directory|failed to open|cannot open|not found).*\.(?:gguf|safetensors|bin|json)|\.(?:gguf|safetensors|bin)\b.*(?:No such file|not found|does not exist)|invalid magic|error loading model|failed to load model|SafetensorError|HeaderTooLarge|corrupt(?:ed)? (?:file|checkpoint)/i,
  },
  {
    verdict: 'ncclTimeout',
    pattern:
      /Watchdog caught collective operation timeout|NCCL (?:timeout|communicator .*abort)|ProcessGroup(?:NCCL|Gloo).*(?:time[d ]*out|timeout)|DistStoreError|DistNetworkError|Timed out .*(?:rendezvous|clients joined|store)|ncclRemoteError|ncclSystemError/i,
  },
  {
    verdict: 'peerRankExited',
    pattern: /Remote RPC server crashed|Connection closed by (?:remote )?peer|peer .*(?:exited|closed)/i,
  },
  { verdict: 'illegalInstruction', pattern: /Illegal instruction|SIGILL/i },
];

const MESSAGE_MAX_CHARS = 300;
/** How far back a cause may stand before the end. */
const LINES_READ = 400;

export function readVerdict(exit: ProcessExit, lines: readonly string[]): EndVerdict {
  // Nobody's fault in the log outweighs a missing interpreter.
  if (exit.code === 127 || exit.code === 126) {
    return { verdict: 'binaryMissing', message: withLine(exitText(exit), lines.at(-1)) };
  }
  if (exit.signal === 'SIGILL' || exit.code === 132) {
    return {
      verdict: 'illegalInstruction',
      message: `${exitText(exit)}: the binary was built for another processor`,
    };
  }
  const recent = lines.slice(-LINES_READ);
  for (const { verdict, pattern } of PATTERNS) {
    const line = recent.findLast((candidate) => pattern.test(candidate));
    if (line !== undefined) return { verdict, message: shortened(line) };
  }
  return { verdict: verdictOfExit(exit), message: withLine(exitText(exit), lines.at(-1)) };
}

/**
 * What a start without progress hung for, where its output tells. vLLM's API server may stay when its engine core could
 * not start: that it hangs is the consequence.
 */
export function withCause(failure: EndVerdict, lines: readonly string[]): EndVerdict {
  if (failure.verdict !== 'noProgress') return failure;
  const { verdict, message } = readVerdict({}, lines);
  return verdict === 'unknown' ? failure : { verdict, message: `${message}; then ${failure.message}` };
}

function verdictOfExit(exit: ProcessExit): Verdict {
  if (exit.signal !== undefined) return 'signalled';
  if (exit.code === 0) return 'exitedCleanly';
  return exit.code === undefined ? 'unknown' : 'crashed';
}

/** How a process ended, in words. */
export function exitText(exit: ProcessExit): string {
  if (exit.signal === 'SIGKILL')
    return 'killed by SIGKILL (by somebody, or by the kernel for lack of memory)';
  if (exit.signal !== undefined) return `ended by ${exit.signal}`;
  if (exit.code === 0) return 'the server ended by itself with exit code 0';
  return exit.code === undefined ? 'ended while no agent was there to see how' : `exit code ${exit.code}`;
}

function withLine(text: string, line: string | undefined): string {
  return line === undefined || line === '' ? text : shortened(`${text}; last line: ${line}`);
}

function shortened(line: string): string {
  const text = line.trim();
  return text.length <= MESSAGE_MAX_CHARS ? text : `${text.slice(0, MESSAGE_MAX_CHARS - 1)}…`;
}
