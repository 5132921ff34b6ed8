/** A refusal in OpenAI's shape as vLLM writes it: the code is the status. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly param: string | null = null,
  ) {
    super(message);
    this.name = 'ApiError';
  }

  get body(): string {
    const type = TYPES[this.status] ?? 'InternalServerError';
    return JSON.stringify({ error: { message: this.message, type, param: this.param, code: this.status } });
  }
}

const TYPES: Readonly<Record<number, string>> = {
  400: 'BadRequestError',
  404: 'NotFoundError',
  405: 'MethodNotAllowedError',
  413: 'RequestTooLargeError',
  501: 'NotImplementedError',
  503: 'ServiceUnavailableError',
};
