import { describe, expect, it } from 'vitest';
import { DEFAULT_SIM_OPTIONS, parseSimCommandLine } from './options.js';

describe('parseSimCommandLine', () => {
  it('has defaults for everything', () => {
    expect(parseSimCommandLine([]).engine).toEqual(DEFAULT_SIM_OPTIONS);
    expect(parseSimCommandLine([]).process).toMatchObject({
      host: '127.0.0.1',
      port: 0,
      ignoreSigterm: false,
    });
  });

  it('reads flags in both spellings', () => {
    const { engine, process } = parseSimCommandLine(
      '--port 8000 --model a --model b --slots=4 --tpot-ms 0.5 --dialect sglang --crash-on-start 3 --log-line x --progress'.split(
        ' ',
      ),
    );
    expect(engine).toMatchObject({ models: ['a', 'b'], slots: 4, tpotMs: 0.5, dialect: 'sglang' });
    expect(process).toMatchObject({ port: 8000, crashOnStart: 3, logLines: ['x'], progress: true });
  });

  it.each([
    ['--nope', "Unknown option '--nope'"],
    ['--slots=0', '--slots: expected a whole number of at least 1, got "0"'],
    ['--slots=1.5', '--slots: expected a whole number'],
    ['--tpot-ms=fast', '--tpot-ms: expected a number of at least 0, got "fast"'],
    ['--port=', '--port: expected a whole number'],
    ['--dialect=tgi', '--dialect: expected vllm, sglang, llamacpp, got "tgi"'],
    ['stray', "Unexpected argument 'stray'"],
  ])('refuses %s', (flag, message) => {
    expect(() => parseSimCommandLine([flag])).toThrow(message);
  });
});
