/** Loading progress as engines print it. Only lines that say where a start stands; anything else is silence. */
import type { LoadStep } from './driver.js';

type Phase = LoadStep['phase'];

export interface StepPattern {
  readonly phase: Phase;
  readonly pattern: RegExp;
}

/** First match wins. The detail shown is the matched part of the line. */
export const COMMON_STEPS: readonly StepPattern[] = [
  // tqdm bars of the hub's downloader, and curl-like lines of llama.cpp.
  {
    phase: 'downloading',
    pattern:
      /(?:Downloading|Fetching|model[\w.-]*\.(?:safetensors|bin|gguf)|[\w.-]+\.gguf)[^|]*?:?\s+\d+%.*/i,
  },
  {
    phase: 'downloading',
    pattern: /download(?:ing|ed)?\b.*?\d+(?:\.\d+)?\s*(?:%|[KMGT]i?B|of\b|\/).*/i,
  },
  { phase: 'loading', pattern: /Loading (?:safetensors|pt|bin|[\w-]*) ?checkpoint shards:\s+\d+%.*/i },
  { phase: 'loading', pattern: /Multi-thread loading shards:\s+\d+%.*/i },
  {
    phase: 'loading',
    pattern: /(?:Starting to load model|Load weight begin|Loading weights|loading model).*/i,
  },
  { phase: 'loading', pattern: /load(?:ing)?\b.*?\d+(?:\.\d+)?\s*(?:%|of \d).*/i },
  { phase: 'compiling', pattern: /Captur(?:ing|e) (?:\w+ )*(?:CUDA|cuda|HIP)[ _]graph.*/i },
  {
    phase: 'compiling',
    pattern: /(?:Compiling|Dynamo bytecode transform|torch\.compile|Graph capturing|autotun(?:ing|e)).*/i,
  },
];

/** The step a line shows, or undefined. */
export function readStepWith(patterns: readonly StepPattern[], line: string): LoadStep | undefined {
  for (const { phase, pattern } of patterns) {
    const match = pattern.exec(line);
    if (match !== null) return { phase, detail: match[0].trim().slice(0, DETAIL_MAX_CHARS) };
  }
  return undefined;
}

const DETAIL_MAX_CHARS = 160;

export function readCommonStep(line: string): LoadStep | undefined {
  return readStepWith(COMMON_STEPS, line);
}
