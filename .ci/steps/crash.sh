#!/usr/bin/env bash
# A thousand SIGKILLs in the middle of writes: no acknowledged change may be lost.
set -eu
cd "$(dirname "$0")/../.."
npm run --silent crash -- --kills 1000
