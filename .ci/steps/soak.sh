#!/usr/bin/env bash
# Thousands of requests through one router, with faults, retries, hedges and leaving clients: nothing may be left behind.
set -eu
cd "$(dirname "$0")/../.."
npx vitest run --project soak
