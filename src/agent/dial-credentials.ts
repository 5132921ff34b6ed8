/** What the agent proves itself with, read anew at each dial: tokens and certificates are rotated under a running agent. */
import { readFileSync } from 'node:fs';
import { credentials, type ChannelCredentials } from '@grpc/grpc-js';
import type { AgentTlsConfig } from '../config/agent-config.js';
import { errorChain } from '../shared/errors.js';
import { readTls, sameTls, tlsProblem, type TlsMaterial, type TlsProblem } from '../shared/tls-files.js';

/** The join token as it is in the file now. */
export function readToken(path: string | undefined): { joinToken?: string } {
  return path === undefined ? {} : { joinToken: readFileSync(path, 'utf8').trim() };
}

function channelCredentials({ ca, cert, key }: TlsMaterial): ChannelCredentials {
  return credentials.createSsl(ca ?? null, key ?? null, cert ?? null);
}

/**
 * Certificates for one dial after the other. Files that are just being replaced, or were replaced by something of no use,
 * leave what was last of use in place: a link that is lost at such a moment must come back.
 */
export class DialCertificates {
  private good: TlsMaterial | undefined;
  private told: string | undefined;

  /** @param tell is given each new problem once, and undefined when it is over. */
  constructor(
    private readonly tls: AgentTlsConfig | undefined,
    private readonly tell: (problem: TlsProblem | undefined) => void,
  ) {}

  /** Throws, naming the file, while there are none that a connection could be made with. */
  next(nowWallMs: number): ChannelCredentials {
    const { tls } = this;
    if (tls === undefined) return credentials.createInsecure();
    const read = this.read(tls, nowWallMs);
    if (read.problem === undefined || this.good === undefined) {
      if (read.material === undefined) throw new Error(read.problem?.message);
      this.good = read.problem === undefined ? read.material : undefined;
      this.note(undefined);
      return channelCredentials(read.material);
    }
    const unchanged = read.material !== undefined && sameTls(read.material, this.good);
    this.note(unchanged ? undefined : read.problem);
    return channelCredentials(this.good);
  }

  /** Material is absent when it is of no use at any time. */
  private read(tls: AgentTlsConfig, nowWallMs: number): { material?: TlsMaterial; problem?: TlsProblem } {
    try {
      const material = readTls(tls);
      const problem = tlsProblem(tls, material, nowWallMs);
      if (problem === undefined) return { material };
      return problem.kind === 'broken' ? { problem } : { material, problem };
    } catch (error) {
      return { problem: { kind: 'broken', message: errorChain(error).join(': ') } };
    }
  }

  private note(problem: TlsProblem | undefined): void {
    if (problem?.message === this.told) return;
    this.told = problem?.message;
    this.tell(problem);
  }
}
