#!/usr/bin/env bash
# The router's specs once more, with every request read by Node's parser: in `npm test` plain ones take the fast path.
set -eu
cd "$(dirname "$0")/../.."
LLMGW_ROUTER_FAST_PATH=false npx vitest run --project unit src/router
