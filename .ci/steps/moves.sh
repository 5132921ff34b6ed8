#!/usr/bin/env bash
# What takes minutes with real processes: drains, reloads, restarts, machines and GPUs in trouble, choices on real sockets.
set -eu
cd "$(dirname "$0")/../.."
npm run --silent build
# Streams as long as answers of large models are.
LLMGW_DRAIN_STREAM_SECONDS=60 npx vitest run --project slow
