#!/usr/bin/env bash
# Completion as bash, zsh and fish take it, the key pressed on a real terminal.
set -eu
cd "$(dirname "$0")/../.."
missing=()
for shell in zsh fish; do command -v "$shell" >/dev/null || missing+=("$shell"); done
if [ "${#missing[@]}" -gt 0 ]; then
  if ! { apt-get update -q && apt-get install -y -q --no-install-recommends "${missing[@]}"; }; then
    echo "skipped for ${missing[*]}: not to be had here"
    npx vitest run --project unit src/cli/ctl/completion.spec.ts
    exit
  fi
fi
LLMGW_TEST_SHELLS=all npx vitest run --project unit src/cli/ctl/completion.spec.ts
