import { createHash } from 'node:crypto';
import { createReadStream, writeFileSync } from 'node:fs';
import type * as Library from 'openai';
import type { OpenAI } from 'openai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { SimEngine } from '../../../src/engines/sim/sim-engine.js';
import { Scratch } from '../../support/llmgw-process.js';
import { CLIENT_SECRET } from './adapters/client-kind.js';
import { Gateway } from './gateway.js';
import { describeClients } from './installed.js';
import { errorOf } from './try-log.js';

/** An id with everything in it that ids of model hubs have. */
const HUB_MODEL = 'org/model:q4@v1';
const MODEL = 'm1';

const LIBRARIES = [
  ['openai 6', async () => await import('openai')],
  ['openai 7', async () => (await import('openai-7')) as unknown as typeof Library],
] as const;

const messages = [{ role: 'user' as const, content: 'Tell me about the API' }];

describeClients('the openai library', () => {
  const engine = new SimEngine({ models: [MODEL, HUB_MODEL] });
  const scratch = new Scratch();
  const bytes = Buffer.from(Array.from({ length: 100_000 }, (_, index) => index % 251));
  const audio = scratch.path('speech.wav');
  let gateway: Gateway;

  beforeAll(async () => {
    writeFileSync(audio, bytes);
    await engine.start();
    gateway = await Gateway.start([{ id: 'e1', url: engine.url, models: [MODEL, HUB_MODEL] }]);
  });
  afterAll(async () => {
    await gateway?.stop();
    await engine.stop();
    scratch.remove();
  });

  describe.each(LIBRARIES)('%s', (name, load) => {
    let library: typeof Library;
    let client: OpenAI;
    let direct: OpenAI;

    beforeAll(async () => {
      library = await load();
      const options = { apiKey: CLIENT_SECRET, maxRetries: 0 };
      client = new library.OpenAI({ ...options, baseURL: `${gateway.url}/v1` });
      direct = new library.OpenAI({ ...options, baseURL: `${engine.url}/v1` });
    });

    it('lists and retrieves models, whatever is in their names', async () => {
      const ids: string[] = [];
      for await (const model of client.models.list()) ids.push(model.id);
      expect(ids).toEqual([MODEL, HUB_MODEL]);
      for (const id of ids) expect((await client.models.retrieve(id)).id).toBe(id);
      const error = await errorOf(client.models.retrieve('nope'));
      expect(error).toBeInstanceOf(library.NotFoundError);
      expect(error).toMatchObject({ code: 'model_not_found' });
    });

    it('raises the class of error that belongs to the status', async () => {
      const unknown = await errorOf(client.chat.completions.create({ model: 'nope', messages }));
      expect(unknown).toBeInstanceOf(library.NotFoundError);
      expect(unknown).toMatchObject({
        status: 404,
        code: 'model_not_found',
        type: 'invalid_request_error',
        param: 'model',
        requestID: expect.stringMatching(/./) as unknown,
      });
      const broken = await errorOf(client.post('/chat/completions', { body: 'no json' }));
      expect(broken).toBeInstanceOf(library.BadRequestError);
      expect(broken).toMatchObject({ code: 'invalid_json' });
      const elsewhere = await errorOf(client.post('/fine_tuning/jobs', { body: { model: MODEL } }));
      expect(elsewhere).toBeInstanceOf(library.NotFoundError);
      expect(elsewhere).toMatchObject({ code: 'not_found' });
    });

    it('hands on the request id', async () => {
      const requestId = name.replace(' ', '-');
      const { request_id: id, data } = await client.chat.completions
        .create({ model: MODEL, messages }, { headers: { 'x-request-id': requestId } })
        .withResponse();
      expect(id).toBe(requestId);
      expect(data.choices).toHaveLength(1);
      expect(engine.requests(requestId)).toHaveLength(1);
    });

    it('sees the engine’s own chunks, nothing added and nothing missing', async () => {
      const body = { model: MODEL, messages, max_tokens: 12, stream: true as const };
      // Ids and times differ from one request to the next.
      const chunks = async (from: OpenAI, options: object) => {
        const found: object[] = [];
        for await (const chunk of await from.chat.completions.create({ ...body, ...options })) {
          found.push({ ...chunk, id: '', created: 0 });
        }
        return found;
      };
      for (const options of [{}, { stream_options: { include_usage: true } }]) {
        expect(await chunks(client, options)).toEqual(await chunks(direct, options));
      }
    });

    it('streams the older completions', async () => {
      const body = { model: HUB_MODEL, prompt: 'Once', max_tokens: 12, seed: 3 };
      let text = '';
      for await (const chunk of await client.completions.create({ ...body, stream: true })) {
        text += chunk.choices[0]?.text ?? '';
      }
      expect(text).not.toBe('');
      expect((await direct.completions.create(body)).choices[0]?.text).toBe(text);
    });

    it('says in its error what broke a stream', async () => {
      const reading = async (fault: string) => {
        const content = `Hello[[fault:${fault}]]`;
        const chunks = await client.chat.completions.create({
          model: MODEL,
          messages: [{ role: 'user', content }],
          stream: true,
        });
        for await (const chunk of chunks) void chunk;
      };
      const cut = await errorOf(reading('half-event-then-reset=5'));
      expect(cut).toBeInstanceOf(library.APIError);
      expect(cut).toMatchObject({ code: 'upstream_aborted' });
      const reported = await errorOf(reading('error-mid=5'));
      expect(reported).toMatchObject({ code: 500, type: 'InternalServerError' });
      expect(reported.message).toContain('scripted error');
    });

    it('says in its error what broke a stream of responses', async () => {
      const reading = async () => {
        const input = 'Hello[[fault:reset-after-events=8]]';
        for await (const event of await client.responses.create({ model: MODEL, input, stream: true })) {
          void event;
        }
      };
      const error = await errorOf(reading());
      expect(error).toBeInstanceOf(library.APIError);
      expect(error).toMatchObject({ code: 'upstream_aborted' });
    });

    it('embeds, as numbers and as base64', async () => {
      const input = ['one', 'two'];
      for (const options of [{}, { encoding_format: 'float' as const }]) {
        const through = await client.embeddings.create({ model: MODEL, input, ...options });
        expect(through.data).toHaveLength(2);
        expect(through).toEqual(await direct.embeddings.create({ model: MODEL, input, ...options }));
      }
    });

    it('uploads audio, with a length and without', async () => {
      const expected = createHash('sha256').update(bytes).digest('hex');
      const file = await library.toFile(bytes, 'speech.wav', { type: 'audio/wav' });
      for (const upload of [file, createReadStream(audio)]) {
        const { text } = await client.audio.transcriptions.create({ model: HUB_MODEL, file: upload });
        expect(text).toBe(expected);
      }
    });

    it('fetches speech, images and verdicts', async () => {
      const speech = { model: MODEL, voice: 'alloy' as const, input: 'Good morning' };
      const spoken = async (from: OpenAI) =>
        Buffer.from(await (await from.audio.speech.create(speech)).arrayBuffer());
      expect((await spoken(client)).equals(await spoken(direct))).toBe(true);
      const image = { model: MODEL, prompt: 'a gateway at dawn' };
      expect(await client.images.generate(image)).toEqual(await direct.images.generate(image));
      const verdict = await client.moderations.create({ model: MODEL, input: 'fine' });
      expect(verdict.results).toHaveLength(1);
    });
  });
});
