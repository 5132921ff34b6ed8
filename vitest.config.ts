import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    projects: [
      {
        test: {
          name: 'unit',
          include: ['src/**/*.spec.ts', 'test/{support,sim,routing-sim,scenario,tidy,fuzz}/**/*.spec.ts'],
          setupFiles: ['test/support/property-seed.ts'],
          testTimeout: 20_000,
        },
      },
      {
        test: {
          name: 'e2e',
          include: ['test/e2e/**/*.spec.ts'],
          testTimeout: 120_000,
          hookTimeout: 120_000,
          // Real processes on two cores: one file at a time keeps deadlines meaningful.
          fileParallelism: false,
        },
      },
      {
        test: {
          // As e2e; what takes minutes of real streams is kept out of the suite people run before each commit.
          name: 'slow',
          include: ['test/slow/**/*.spec.ts'],
          testTimeout: 240_000,
          hookTimeout: 120_000,
          fileParallelism: false,
        },
      },
      {
        test: {
          name: 'soak',
          include: ['test/soak/**/*.spec.ts'],
          testTimeout: 1_200_000,
        },
      },
      {
        test: {
          name: 'interop',
          include: ['test/interop/**/*.spec.ts'],
          testTimeout: 120_000,
          hookTimeout: 120_000,
          fileParallelism: false,
        },
      },
    ],
  },
});
