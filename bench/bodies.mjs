// Sends bodies that are hard to digest, one after the other; a program of its own, so that making them delays nobody who measures.
import http from 'node:http';

const MB = 1_000_000;
const chat = (content) => JSON.stringify({ model: 'm1', messages: [{ role: 'user', content }] });
const picture = (bytes) =>
  chat([{ type: 'image_url', image_url: { url: `data:image/png;base64,${'QUJD'.repeat(bytes / 4)}` } }]);
const nested = (depth) => `{"model":"m1","messages":[],"x":${'['.repeat(depth)}1${']'.repeat(depth)}}`;
const many = (length) =>
  JSON.stringify({ model: 'm1', messages: [], x: Array.from({ length }, (_, i) => i) });
const deep = nested(10_000);
// The depth of one and the size of the others at once.
const deepAndLarge = `${deep.slice(0, -1)},"y":"${'z'.repeat(20 * MB)}"}`;

const bodies = [
  ...Array.from({ length: 10 }, () => picture(20 * MB)),
  ...Array.from({ length: 7 }, () => chat('word '.repeat(4 * MB))),
  // Every second byte has to be unescaped to be understood.
  chat('"\n'.repeat(5 * MB)),
  deepAndLarge,
  deep,
  many(1_000_000),
];

const [port, ...headers] = process.argv.slice(2);
const given = Object.fromEntries(headers.map((header) => header.split(/: (.*)/s)));

const post = (body) =>
  new Promise((resolve) => {
    const options = { host: '127.0.0.1', port, path: '/v1/chat/completions', method: 'POST' };
    const length = Buffer.byteLength(body);
    const request = http.request(
      { ...options, headers: { ...given, 'content-type': 'application/json', 'content-length': length } },
      (response) => response.resume().once('end', () => resolve(response.statusCode)),
    );
    request.once('error', (error) => resolve(error.code));
    request.end(body);
  });

process.stdin.once('data', async () => {
  const answers = {};
  for (const body of bodies) {
    const answer = await post(body);
    answers[answer] = (answers[answer] ?? 0) + 1;
  }
  process.stdout.write(JSON.stringify(answers));
  process.exit(0);
});
process.stdout.write('ready\n');
