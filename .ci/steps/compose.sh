#!/usr/bin/env bash
# docker-compose.yml as compose itself reads it; Debian's will do where Docker's is not installed. No daemon is needed.
set -eu
cd "$(dirname "$0")/../.."
if docker compose version >/dev/null 2>&1; then
  docker compose --profile load config --quiet
  exit
fi
if ! command -v docker-compose >/dev/null; then
  if ! { apt-get update -q && apt-get install -y -q --no-install-recommends docker-compose; }; then
    echo 'skipped: no docker compose to be had here'
    exit 0
  fi
fi
docker-compose --profile load config --quiet
