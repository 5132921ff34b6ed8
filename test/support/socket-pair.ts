import { once } from 'node:events';
import net from 'node:net';

/** Two ends of one connection; the far one reads nothing until it is told to. Whoever asks destroys both. */
export async function socketPair(): Promise<{ readonly near: net.Socket; readonly far: net.Socket }> {
  const server = net.createServer({ pauseOnConnect: true }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const near = net.connect((server.address() as net.AddressInfo).port, '127.0.0.1');
  const [far] = (await once(server, 'connection')) as [net.Socket];
  server.close();
  near.on('error', () => undefined);
  far.on('error', () => undefined);
  if (near.connecting) await once(near, 'connect');
  return { near, far };
}

/** Everything that comes until the peer ends. */
export async function readAll(far: net.Socket): Promise<string> {
  let text = '';
  far.setEncoding('latin1').on('data', (part: string) => (text += part));
  far.resume();
  await once(far, 'end');
  return text;
}
