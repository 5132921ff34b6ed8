/** The system's code of an error (`ENOENT`, `ECONNREFUSED`), looked up through its causes; undefined when it has none. */
export function errorCode(error: unknown): string | undefined {
  // undici and gRPC wrap the socket's error; a few levels are enough and a ring must not hang us.
  for (let at = error, depth = 0; at instanceof Error && depth < 5; at = at.cause, depth++) {
    const code = (at as NodeJS.ErrnoException).code;
    if (typeof code === 'string') return code;
  }
  return undefined;
}
