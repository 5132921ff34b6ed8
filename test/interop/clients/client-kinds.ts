import type OpenAI from 'openai';
import type { ClientKind, ClientSetup, TextClient } from './adapters/client-kind.js';

/** Makes a kind whose library is loaded when it is first opened: a spec that is skipped must not need it. */
function kind(
  name: string,
  api: ClientKind['api'],
  traits: Partial<Pick<ClientKind, 'usageByChoice' | 'obeysShouldRetry' | 'repeatsErrorEvents'>>,
  open: (setup: ClientSetup) => Promise<TextClient>,
): ClientKind {
  const none = { usageByChoice: false, obeysShouldRetry: false, repeatsErrorEvents: false };
  return { name, api, ...none, ...traits, open };
}

const openai6 = async (): Promise<typeof OpenAI> => (await import('openai')).default;
/** The newest; of the parts used here its types are those of 6. */
const openai7 = async (): Promise<typeof OpenAI> =>
  (await import('openai-7')).default as unknown as typeof OpenAI;

const chosen = { usageByChoice: true, obeysShouldRetry: true };
const chat = () => import('./adapters/openai-chat.js');
const responses = () => import('./adapters/openai-responses.js');
const anthropic = () => import('./adapters/anthropic-messages.js');
const aiSdk = () => import('./adapters/ai-sdk.js');

/** Every way in which applications reach the gateway that is tried here. */
export const CLIENT_KINDS: readonly ClientKind[] = [
  kind('openai 6, loop', 'chat', chosen, async (setup) => (await chat()).openaiLoop(await openai6(), setup)),
  kind('openai 6, helper', 'chat', chosen, async (setup) =>
    (await chat()).openaiHelper(await openai6(), setup),
  ),
  kind('openai 7, loop', 'chat', chosen, async (setup) => (await chat()).openaiLoop(await openai7(), setup)),
  kind('openai 7, helper', 'chat', chosen, async (setup) =>
    (await chat()).openaiHelper(await openai7(), setup),
  ),
  kind('ai, openai-compatible', 'chat', { usageByChoice: true }, async (setup) =>
    (await aiSdk()).aiSdkChat(setup),
  ),
  kind('langchain', 'chat', { usageByChoice: true }, async (setup) =>
    (await import('./adapters/langchain.js')).langchain(setup),
  ),
  kind('openai 6, responses', 'responses', { obeysShouldRetry: true }, async (setup) =>
    (await responses()).openaiResponses(await openai6(), setup),
  ),
  kind('openai 7, responses', 'responses', { obeysShouldRetry: true }, async (setup) =>
    (await responses()).openaiResponses(await openai7(), setup),
  ),
  kind('ai, responses', 'responses', { repeatsErrorEvents: true }, async (setup) =>
    (await aiSdk()).aiSdkResponses(setup),
  ),
  kind('anthropic, loop', 'messages', { obeysShouldRetry: true }, async (setup) =>
    (await anthropic()).anthropicLoop(setup),
  ),
  kind('anthropic, helper', 'messages', { obeysShouldRetry: true }, async (setup) =>
    (await anthropic()).anthropicHelper(setup),
  ),
];

/** Those that ask by `/v1/chat/completions`, the only text API the embedded engine has. */
export const CHAT_KINDS: readonly ClientKind[] = CLIENT_KINDS.filter(({ api }) => api === 'chat');
