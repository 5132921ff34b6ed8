// How the body scan compares with JSON.parse, by hand: `npm run build && node bench/json-scan.mjs`.
// Both start from the received bytes, so JSON.parse pays for making the string, as it would in the router.
import { isDeepStrictEqual } from 'node:util';

const { scanBody } = await import(process.env.LLMGW_DIST ?? '../dist/router/bytes/json-scan.js');

const WORDS = 'the quick brown fox jumps over the lazy dog. ';

function messagesOf(kind, bytes) {
  switch (kind) {
    case 'one':
      return [{ role: 'user', content: WORDS.repeat(bytes / WORDS.length) }];
    case 'chat':
      return Array.from({ length: Math.max(1, bytes / 420) }, (_, i) => ({
        role: i % 2 ? 'assistant' : 'user',
        content: 'He said "hello"\n' + WORDS.repeat(8),
      }));
    case 'code':
      return [{ role: 'user', content: 'if (x == "a") {\n\treturn "b\\n";\n}\n'.repeat(bytes / 44) }];
    case 'cjk':
      return [{ role: 'user', content: '日本語の長い文章です。'.repeat(bytes / 33) }];
    case 'image':
      return [
        {
          role: 'user',
          content: [{ type: 'image_url', image_url: { url: 'iVBORw0KGgoAAAANSUhEUgAA'.repeat(bytes / 24) } }],
        },
      ];
    case 'numbers':
      return Array.from({ length: bytes / 6 }, (_, i) => 10000 + (i % 50000));
    default:
      throw new Error(kind);
  }
}

function bodyOf(kind, bytes) {
  const body = {
    messages: messagesOf(kind, bytes),
    temperature: 0.7,
    max_tokens: 512,
    stream: true,
    model: 'org/name-8b',
  };
  return Buffer.from(JSON.stringify(body));
}

/** The best of many short batches: on a shared machine the others tell how busy it was. */
function microseconds(run, body) {
  const rounds = Math.max(2, Math.floor(5e5 / Math.max(body.length, 500)));
  for (let i = 0; i < rounds * 20; i++) run(body);
  let best = Infinity;
  for (let batch = 0; batch < 100; batch++) {
    const start = process.hrtime.bigint();
    for (let i = 0; i < rounds; i++) run(body);
    best = Math.min(best, Number(process.hrtime.bigint() - start) / rounds / 1e3);
  }
  return best;
}

const CASES = [
  ['one', 300],
  ['chat', 3000],
  ...['one', 'chat', 'code', 'cjk', 'image', 'numbers'].map((kind) => [kind, 32 << 10]),
  ...['one', 'chat', 'code', 'cjk', 'image', 'numbers'].map((kind) => [kind, 2 << 20]),
];
console.log(
  `# node ${process.version}\n| body | bytes | JSON.parse µs | scan µs | ratio | GB/s |\n|---|---|---|---|---|---|`,
);
for (const [kind, size] of CASES) {
  const body = bodyOf(kind, size);
  const scan = scanBody(body);
  const parsed = JSON.parse(body.toString());
  const messages = JSON.parse(body.toString('utf8', scan.messages.from, scan.messages.to));
  if (
    scan.model !== parsed.model ||
    scan.stream !== parsed.stream ||
    !isDeepStrictEqual(messages, parsed.messages)
  )
    throw new Error(`the scan is wrong on ${kind}`);
  const parse = microseconds((bytes) => JSON.parse(bytes.toString()), body);
  const ours = microseconds(scanBody, body);
  const speed = body.length / ours / 1e3;
  console.log(
    `| ${kind} | ${body.length} | ${parse.toFixed(2)} | ${ours.toFixed(2)} | ${(parse / ours).toFixed(1)} | ${speed.toFixed(2)} |`,
  );
}
