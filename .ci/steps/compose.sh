#!/usr/bin/env bash
# docker-compose.yml as compose itself reads it, where it is installed. No daemon is needed.
set -eu
cd "$(dirname "$0")/../.."
if ! docker compose version >/dev/null 2>&1; then
  echo 'skipped: no docker compose here'
  exit 0
fi
docker compose --profile load config --quiet
