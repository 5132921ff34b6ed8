import { describe, expect, it } from 'vitest';
import { codeOnly, importsOf, roomOf } from './repository.js';

describe('reading sources', () => {
  it('finds every kind of import', () => {
    const text = `
import 'reflect-metadata';
import { a } from '../domain/a.js';
import type { B } from './b.js';
import {
  c,
  type D,
} from '../shared/c.js';
export { e } from './e.js';
const f = await import('../server/f.js');
`;
    expect(importsOf({ path: 'src/cli/x.ts', text })).toEqual([
      { specifier: 'reflect-metadata', kind: 'value' },
      { specifier: '../domain/a.js', kind: 'value', file: 'src/domain/a.ts' },
      { specifier: './b.js', kind: 'type', file: 'src/cli/b.ts' },
      { specifier: '../shared/c.js', kind: 'value', file: 'src/shared/c.ts' },
      { specifier: './e.js', kind: 'value', file: 'src/cli/e.ts' },
      { specifier: '../server/f.js', kind: 'dynamic', file: 'src/server/f.ts' },
    ]);
  });

  it('leaves comments and strings out, and lines where they were', () => {
    const code = codeOnly(
      "/* Date.now() */ const a = 'setTimeout('; // Math.random()\n/**\n * x\n */ real();",
    );
    expect(code).not.toMatch(/Date|setTimeout|random/);
    expect(code.split('\n')[3]).toContain('real()');
    expect(codeOnly("const url = 'http://x';\ncall();")).toContain('call()');
  });

  it('knows the room of a file', () => {
    expect([roomOf('src/main.ts'), roomOf('src/router/bytes/head.ts')]).toEqual(['main', 'router']);
  });
});
