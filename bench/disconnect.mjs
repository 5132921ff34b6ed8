// How long an engine's connection stays open after a client has left: in the middle of a stream, and before any answer.
import http from 'node:http';
import net from 'node:net';

const EVENT = 'data: {"choices":[{"delta":{"content":"x"}}]}\n\n';

/** An engine that notes when each of its connections closes. */
function engine(port) {
  const closed = new Map();
  const server = http.createServer((request, response) => {
    const id = request.headers['x-request-id'].split('-')[0];
    request.socket.once('close', () => closed.get(id)?.(performance.now()));
    let body = '';
    request.on('data', (piece) => (body += piece));
    request.on('end', () => {
      if (!body.includes('"stream":true')) return;
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      const timer = setInterval(() => response.write(EVENT), 20);
      response.once('close', () => clearInterval(timer));
      response.write(EVENT);
    });
  });
  return new Promise((resolve) => server.listen(port, '127.0.0.1', () => resolve({ server, closed })));
}

function leave(port, id, stream, closed) {
  const body = JSON.stringify({ model: 'm1', stream, messages: [] });
  return new Promise((resolve) => {
    const socket = net.connect(port, '127.0.0.1');
    let leftMs = 0;
    closed.set(id, (atMs) => resolve(atMs - leftMs));
    const go = () => {
      leftMs = performance.now();
      socket.destroy();
    };
    socket.on('error', () => undefined);
    socket.once('data', go);
    if (!stream) setTimeout(go, 30);
    socket.write(
      `POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nx-request-id: ${id}\r\n` +
        `content-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
    );
  });
}

/** Milliseconds per client that left, sorted. The gateway must send its requests to `enginePort`. */
export async function disconnects(gatewayPort, enginePort, count = 200) {
  const { server, closed } = await engine(enginePort);
  const took = [];
  for (let at = 0; at < count; at += 10) {
    const some = Array.from({ length: 10 }, (_, i) => leave(gatewayPort, `d${at + i}`, i % 2 === 0, closed));
    took.push(...(await Promise.all(some)));
  }
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
  return took.sort((a, b) => a - b);
}
