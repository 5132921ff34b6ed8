#!/usr/bin/env bash
# The control plane under faults: seeded histories, each step held to the invariants. A failure prints its replay command.
set -eu
cd "$(dirname "$0")/../.."
npm run --silent sim -- --seeds 200 --steps 5000
