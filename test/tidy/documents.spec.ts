import { resolve } from 'node:path';
import prettier from 'prettier';
import { describe, expect, it } from 'vitest';
import { ctlDocument } from './ctl-document.js';
import { configurationDocument, errorsDocument, metricsDocument } from './documents.js';
import { ROOT, isSource, projectFiles, read } from './repository.js';
import { metricsOf } from './metric-list.js';

/** As the formatter leaves it: the check of the format and this one must agree. */
async function document(text: string): Promise<string> {
  const options = await prettier.resolveConfig(resolve(ROOT, 'README.md'));
  return prettier.format(text, { ...options, parser: 'markdown' });
}

describe('documents are what the code says; `npm run docs` writes them', () => {
  it.each([
    ['configuration.md', configurationDocument],
    ['ctl.md', ctlDocument],
    ['errors.md', errorsDocument],
    ['metrics.md', metricsDocument],
  ])('docs/%s', async (name, write) => {
    await expect(await document(write())).toMatchFileSnapshot(`../../docs/${name}`);
  });

  it('every metric of the code is found, with a type and a sentence', () => {
    const files = projectFiles().filter(isSource).map(read);
    const entries = metricsOf(files);
    const named = files.flatMap(({ text }) =>
      [...text.matchAll(/'(llmgw_[a-z0-9_]+)'/g)].map(([, name]) => name!),
    );
    expect(entries.map(({ name }) => name)).toEqual(
      [...new Set(named)].toSorted((a, b) => a.localeCompare(b)),
    );
    for (const { name, type, help } of entries) {
      expect([name, type]).toEqual([name, expect.stringMatching(/^(counter|gauge|histogram)$/)]);
      expect([name, help]).toEqual([name, expect.stringMatching(/^[A-Z0-9].*\.$/s)]);
      expect([name, type === 'counter']).toEqual([name, name.endsWith('_total')]);
    }
  });
});
