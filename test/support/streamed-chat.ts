import { request, type Agent, type IncomingMessage } from 'node:http';

/**
 * One streamed chat with model `m1` over a kept-alive connection: `whole`, or what went wrong. No retry of any kind, so that
 * whatever goes wrong is seen. `begun` is called at the first bytes.
 */
export async function chat(
  url: string,
  agent: Agent,
  maxTokens: number,
  begun?: () => void,
): Promise<string> {
  const body = JSON.stringify({
    model: 'm1',
    stream: true,
    max_tokens: maxTokens,
    ignore_eos: true,
    messages: [{ role: 'user', content: 'go on' }],
  });
  try {
    const answer = await new Promise<IncomingMessage>((resolve, reject) => {
      const headers = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) };
      request(`${url}/v1/chat/completions`, { method: 'POST', agent, headers }, resolve)
        .on('error', reject)
        .end(body);
    });
    let text = '';
    for await (const chunk of answer) {
      text += String(chunk);
      begun?.();
      begun = undefined;
    }
    return answer.statusCode === 200 && text.endsWith('data: [DONE]\n\n')
      ? 'whole'
      : `${answer.statusCode} ${text.slice(-200)}`;
  } catch (error) {
    return String(error);
  }
}
