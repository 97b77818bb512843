#!/usr/bin/env bash
# The path of docs/real_models.md with a model and a text made on the spot. usage: real_models_test.sh BUILD. Exit 77: transformers is missing.
set -euo pipefail
python=.deps/oracle/bin/python
if ! "$python" -c 'import torch, transformers, safetensors, tiktoken' 2>/dev/null; then
  echo "skipped: $python has no transformers (common/setup/setup.sh --oracle installs it)"
  exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -B tests/model/real_models_test.py "$1/bin" "$folder"
