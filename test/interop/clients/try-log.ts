/** One HTTP request of a client library. */
export interface Try {
  /** Monotonic milliseconds. */
  readonly startedMs: number;
  /** Undefined until the head of an answer is here. */
  status: number | undefined;
  headers: Headers | undefined;
}

/** A `fetch` that keeps what a client library does with it: how often it tries, when, and what it is answered. */
export class TryLog {
  readonly tries: Try[] = [];

  readonly fetch: typeof fetch = async (input, init) => {
    const entry: Try = { startedMs: performance.now(), status: undefined, headers: undefined };
    this.tries.push(entry);
    const response = await fetch(input, init);
    entry.status = response.status;
    entry.headers = response.headers;
    return response;
  };

  get statuses(): (number | undefined)[] {
    return this.tries.map(({ status }) => status);
  }

  header(name: string, index = 0): string | null | undefined {
    return this.tries[index]?.headers?.get(name);
  }
}

/** The HTTP status an error of any of the libraries carries. */
export function statusOf(error: unknown): number | undefined {
  const { status, statusCode, lastError } = error as {
    status?: number;
    statusCode?: number;
    lastError?: unknown;
  };
  return status ?? statusCode ?? (lastError === undefined ? undefined : statusOf(lastError));
}

/** The error a promise is rejected with; fails when it is not. */
export async function errorOf(promise: Promise<unknown>): Promise<Error> {
  try {
    const value = await promise;
    throw new NotRejected(value);
  } catch (error) {
    if (error instanceof NotRejected) throw error;
    return error as Error;
  }
}

class NotRejected extends Error {
  constructor(value: unknown) {
    super(`expected an error, got ${JSON.stringify(value)}`);
  }
}
