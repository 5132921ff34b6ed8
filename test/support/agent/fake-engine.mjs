/* oxlint-disable no-console */
// A scripted engine. Times are milliseconds after the start.
// usage: fake-engine.mjs --port N --model ID [--listen-at N] [--health-at N] [--token-at N] [--token-takes N] [--serve-model ID] [--say TEXT]...
//        [--flood BYTES] [--pour BYTES] [--exit-at N --exit-code N] [--hang-generation] [--ignore-term] [--print-env]
import { createServer } from 'node:http';
import { parseArgs } from 'node:util';

const { values } = parseArgs({
  options: {
    host: { type: 'string', default: '127.0.0.1' },
    port: { type: 'string' },
    model: { type: 'string' },
    'serve-model': { type: 'string' },
    'listen-at': { type: 'string', default: '0' },
    'health-at': { type: 'string', default: '0' },
    'token-at': { type: 'string', default: '0' },
    'token-takes': { type: 'string', default: '0' },
    say: { type: 'string', multiple: true, default: [] },
    flood: { type: 'string' },
    pour: { type: 'string' },
    'exit-at': { type: 'string' },
    'exit-code': { type: 'string', default: '0' },
    'hang-generation': { type: 'boolean', default: false },
    'ignore-term': { type: 'boolean', default: false },
    'print-env': { type: 'boolean', default: false },
  },
  allowPositionals: true,
});
const began = performance.now();
const reached = (at) => performance.now() - began >= Number(at);
let generated = 0;
let running = 0;

if (values['ignore-term']) process.on('SIGTERM', () => console.log('ignoring SIGTERM'));
if (values['print-env']) console.log(JSON.stringify({ argv: process.argv.slice(2), env: process.env }));
for (const text of values.say) console.error(text);
if (values.flood !== undefined) {
  const line = `${'x'.repeat(999)}\n`;
  for (let left = Number(values.flood); left > 0; left -= 1000) process.stdout.write(line);
  console.log('flood over');
}
// For as long as it lives, so many bytes each 20 ms.
if (values.pour !== undefined)
  setInterval(() => process.stdout.write(`${'y'.repeat(Number(values.pour) - 1)}\n`), 20);
if (values['exit-at'] !== undefined)
  setTimeout(() => process.exit(Number(values['exit-code'])), Number(values['exit-at']));

const json = (res, status, body) => {
  res.writeHead(status, { 'content-type': 'application/json' });
  res.end(JSON.stringify(body));
};
const server = createServer((req, res) => {
  const path = req.url.split('?')[0];
  if (path === '/health') return json(res, reached(values['health-at']) ? 200 : 503, { status: 'x' });
  if (path === '/metrics') {
    res.writeHead(200, { 'content-type': 'text/plain' });
    return res.end(
      `vllm:num_requests_running{m="a"} ${running}\nvllm:num_requests_waiting 0\nvllm:generation_tokens_total ${generated}\n`,
    );
  }
  if (path === '/v1/models') return json(res, 200, { data: [{ id: values['serve-model'] ?? values.model }] });
  if (req.method !== 'POST') return json(res, 404, {});
  if (values['hang-generation']) return void (running += 1);
  if (!reached(values['token-at'])) return json(res, 503, { error: { message: 'loading' } });
  generated += 1;
  const answer = { choices: [{ text: 'hello', finish_reason: 'length' }] };
  return void setTimeout(() => json(res, 200, answer), Number(values['token-takes']));
});
setTimeout(() => server.listen(Number(values.port), values.host), Number(values['listen-at']));
