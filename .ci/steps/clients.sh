#!/usr/bin/env bash
# The client libraries that applications use, through the built gateway: simulated engines, the embedded one, faults.
set -eu
cd "$(dirname "$0")/../.."
# Some of them declare a newer Node than the oldest they run on.
npm ci --prefix test/interop/clients --ignore-scripts --no-audit --no-fund --engine-strict=false --loglevel=error
[ -e dist/main.js ] || npx nest build
npx tsc --noEmit -p test/interop/clients
npx oxlint --type-aware --quiet test/interop/clients
npx vitest run --project interop test/interop/clients
