#!/usr/bin/env bash
# Whether the simulator sees: every planted bug must break a history. Each bug's run ends at its first finding.
set -eu
cd "$(dirname "$0")/../.."
npm run --silent sim:mutants
