#!/usr/bin/env node
// Whether the load generator sees what it is there to see: between it and the fake engine sits a relay that spoils one
// event of a stream in one way, and each way must be reported. `npm run bench -- --scenarios check`.
import net from 'node:net';
import { load } from './measure.mjs';

const EVENT = /[0-9a-f]+\r\n(?:data: [^\n]*\n\n)+\r\n/g;

/** Ways to spoil a stream; each takes the chunks of its events and gives those that are passed on. */
const FAULTS = {
  nothing: (events) => events,
  'an event lost': (events) => events.filter((_, i) => i !== 7),
  'an event doubled': (events) => events.flatMap((event, i) => (i === 7 ? [event, event] : [event])),
  'two events swapped': (events) => [...events.slice(0, 7), events[8], events[7], ...events.slice(9)],
  'the last event lost': (events) => events.slice(0, -1),
  'one byte lost': (events) =>
    events.map((event, i) => (i === 7 ? resized(event, (text) => text.replace('x', '')) : event)),
  'one byte gained': (events) =>
    events.map((event, i) => (i === 7 ? resized(event, (text) => text.replace('x', 'xx')) : event)),
};

/** A chunk with other bytes in it and the size that fits them: nothing but the contents is wrong. */
function resized(chunk, change) {
  const data = change(chunk.slice(chunk.indexOf('\r\n') + 2, -2));
  return `${data.length.toString(16)}\r\n${data}\r\n`;
}

function spoiler(port, enginePort, fault) {
  const server = net.createServer((client) => {
    const engine = net.connect(enginePort, '127.0.0.1');
    let answer = '';
    client.on('data', (bytes) => engine.write(bytes));
    engine.on('data', (bytes) => {
      answer += bytes.toString('latin1');
      if (!answer.endsWith('0\r\n\r\n')) return;
      const events = [...answer.matchAll(EVENT)].map(([event]) => event);
      const start = answer.indexOf(events[0]);
      const rest = answer.slice(start + events.join('').length);
      client.write(answer.slice(0, start) + fault(events).join('') + rest, 'latin1');
      answer = '';
    });
    for (const socket of [client, engine]) socket.on('error', () => undefined);
    client.on('close', () => engine.destroy());
    engine.on('close', () => client.destroy());
  });
  return new Promise((resolve) => server.listen(port, '127.0.0.1', () => resolve(server)));
}

/** Name of each fault, and whether the load generator took note of it (or rightly of none). */
export async function selfCheck(program, enginePort, port) {
  const results = [];
  for (const [name, fault] of Object.entries(FAULTS)) {
    const server = await spoiler(port, enginePort, fault);
    const shape = ['-c', '2', '-d', '0.5', '-w', '0', '-s', 'events=20 size=200 pause=1'];
    const result = await load(program, { port }, shape);
    const sawIt = result.errors > 0;
    results.push({
      name,
      right: sawIt === (name !== 'nothing') && (sawIt || result.allEvents > 20),
      said: result.firstError,
    });
    await new Promise((resolve) => server.close(resolve));
  }
  return results;
}
