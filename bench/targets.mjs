// What is measured. Each listens on a port of its own and forwards to the fake engine.
import { existsSync, mkdirSync, mkdtempSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { exists } from './measure.mjs';

/** The first of the ports used; two runs at once need different ones. */
const BASE_PORT = Number(process.env.BENCH_PORT ?? 21_600);
export const ENGINE_PORT = BASE_PORT + 1;
const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '..');
export const scratch = mkdtempSync(path.join(os.tmpdir(), 'llmgw-bench-'));

/** nginx as its users set it up for streams: one worker, kept-alive connections, no buffering. */
function nginx(port) {
  const file = path.join(scratch, 'nginx.conf');
  const folder = (name) => path.join(scratch, name);
  mkdirSync(folder('nginx'), { recursive: true });
  const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi']
    .map((kind) => `${kind}_temp_path ${folder(`nginx/${kind}`)};`)
    .join(' ');
  writeFileSync(
    file,
    `worker_processes 1; worker_rlimit_nofile 20000; daemon off; pid ${folder('nginx.pid')}; error_log ${folder('nginx.log')} warn;
events { worker_connections 16384; }
http {
  access_log off; ${temporary}
  keepalive_requests 10000000; keepalive_timeout 300s; tcp_nodelay on; client_max_body_size 64m; client_body_buffer_size 4m;
  upstream engine { server 127.0.0.1:${ENGINE_PORT}; keepalive 4096; keepalive_requests 10000000; }
  server {
    listen 127.0.0.1:${port} backlog=4096;
    location / { proxy_pass http://engine; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off; proxy_read_timeout 600s; }
  }
}
`,
  );
  return { name: 'nginx', port, command: ['nginx', '-c', file, '-p', scratch] };
}

function llmgw(port, name = 'llmgw', folder = root) {
  const main = path.join(folder, 'dist', 'main.js');
  if (!existsSync(main)) throw new Error(`${main} is not there: run \`npm run build\` first`);
  const listen = ['--listen', `127.0.0.1:${port}`, '--admin-listen', `127.0.0.1:${port + 1}`];
  const endpoint = ['--endpoint', `e1=http://127.0.0.1:${ENGINE_PORT}=m1`];
  return {
    name,
    port,
    command: [
      process.execPath,
      main,
      'server',
      ...listen,
      '--agent-listen',
      `127.0.0.1:${port + 2}`,
      ...endpoint,
    ],
    cwd: scratch,
  };
}

/** llmgw that lets nobody in without a key; `makeKey` makes one, which is sent from then on. */
export function keyedLlmgw() {
  const port = BASE_PORT + 50;
  const target = llmgw(port, 'llmgw, keys required');
  const file = path.join(scratch, 'keyed.yaml');
  writeFileSync(file, `stateDir: ${path.join(scratch, 'keyed')}\nauth: { apiKeys: { required: true } }\n`);
  target.command.push('--config', file);
  target.makeKey = async () => {
    const made = await fetch(`http://127.0.0.1:${port + 1}/admin/v1/keys`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(KEY),
    });
    if (!made.ok) throw new Error(`no key was made: ${await made.text()}`);
    target.headers = [`authorization: Bearer ${(await made.json()).secret}`];
  };
  return target;
}

/** Limits of every kind, none of which is ever reached. */
const KEY = {
  name: 'bench',
  models: ['m*'],
  requestsPerMinute: 100_000_000,
  tokensPerMinute: 1_000_000_000,
  maxConcurrent: 100_000,
};

/** A gateway in the same language, where somebody installed it. */
function peer(port) {
  const folder = process.env.BENCH_PEER_DIR;
  if (folder === undefined) return undefined;
  const main = path.join(folder, 'node_modules/@portkey-ai/gateway/build/start-server.js');
  if (!existsSync(main)) return undefined;
  return {
    name: 'portkey',
    port,
    command: [process.execPath, main, '--headless', `--port=${port}`],
    cwd: folder,
    env: { NODE_ENV: 'production' },
    headers: ['x-portkey-provider: openai', `x-portkey-custom-host: http://127.0.0.1:${ENGINE_PORT}/v1`],
  };
}

/** Everything present on this machine, the one the others are compared with first. */
export function targets() {
  const other = process.env.BENCH_OTHER_DIR;
  const list = [
    exists('nginx') ? nginx(BASE_PORT + 10) : undefined,
    llmgw(BASE_PORT + 20),
    other === undefined ? undefined : llmgw(BASE_PORT + 40, 'other', path.resolve(other)),
    peer(BASE_PORT + 30),
  ];
  return list.filter((target) => target !== undefined);
}
