import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { type ProtoNumbers, proveNumbers, readProto } from './proto-numbers.js';

const PROTO = 'proto/llmgw/agent/v1/agent.proto';
const LOCK = 'test/tidy/proto-numbers.json';

const text = readFileSync(PROTO, 'utf8');
const lock = JSON.parse(readFileSync(LOCK, 'utf8')) as ProtoNumbers;

describe('the numbers of the agent protocol', () => {
  it('mean what they meant in every version before, and none is used again', () => {
    expect(proveNumbers(lock, readProto(text)), LOCK).toEqual([]);
  });

  it.each([
    ['a field that was renumbered', ['string build = 3;', 'string build = 33;'], ['Hello 3 ', 'Hello 33 ']],
    [
      'two fields that changed places',
      ['string node_id = 4;', 'string build = 4;', 'string build = 3;', 'string node_id = 3;'],
      ['Hello 3 ', 'Hello 4 '],
    ],
    ['a field of another type', ['uint32 http_port = 17;', 'string http_port = 17;'], ['StartShard 17 ']],
    ['a field under another name', ['uint32 http_port = 17;', 'uint32 port = 17;'], ['StartShard 17 ']],
    ['a field that is gone', ['  uint32 http_port = 17;\n', ''], ['StartShard 17 ']],
    [
      'a new field that is not locked yet',
      ['string command_id = 2;', 'string command_id = 2;\n  string why = 99;'],
      [''],
    ],
    [
      'a field that is gone and reserved',
      ['uint32 http_port = 17;', 'reserved 17;\n  reserved "http_port";'],
      [],
    ],
  ])('%s', (_, changes, named) => {
    let changed = text;
    for (let index = 0; index < changes.length; index += 2)
      changed = changed.replace(changes[index] ?? '', changes[index + 1] ?? '');
    expect(changed).not.toBe(text);
    const broken = proveNumbers(lock, readProto(changed));
    expect(broken.length > 0).toBe(named.length > 0);
    for (const name of named) expect(broken.join('\n')).toContain(name);
  });

  it('are not given twice in one message, and a line nobody understands is an error', () => {
    expect(() => readProto('message A {\n  string a = 1;\n  string b = 1;\n}')).toThrow('given twice');
    expect(() => readProto('message A {\n  group b\n}')).toThrow('not understood');
  });
});
